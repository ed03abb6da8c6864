#!/bin/sh
# forecast.sh CITY TARGET: today's weather, or a page that says that there is none to be had.
set -eu
city=$1 target=$2
if weather=$(curl --silent --show-error --fail --max-time 10 "https://api.weather.example/today?city=$city" 2>&1); then
    printf '# Weather in %s\n\n%s\n' "$city" "$weather" >"$target"
    printf 'the forecast is there\n'
else
    printf '# Weather in %s\n\nThe weather service could not be reached, so there is no forecast.\n' "$city" >"$target"
    printf 'no forecast: the service could not be reached\n'
fi
