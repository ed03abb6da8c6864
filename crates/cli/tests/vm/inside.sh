#!/bin/sh
# Run as root in the machine of scripts/vm; crates/cli/tests/vm.rs judges what it prints.
set -u
belljar=/opt/belljar
groups=/sys/fs/cgroup

# try NAME COMMAND…: its outputs, then its status.
try() {
    echo "@begin $1"
    shift
    try_status=0
    "$@" </dev/null >/tmp/try 2>&1 || try_status=$?
    cat /tmp/try
    echo "@end $try_status"
}

# as_user COMMAND…: as an ordinary user who has a home.
as_user() { HOME=/home/user setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }

# project LIMITS: the directory of a project whose agent has them, for root and for the user.
project() {
    project_number=$((${project_number:-0} + 1))
    cd /
    mkdir -p "/home/user/project$project_number"
    cd "/home/user/project$project_number" || exit 1
    printf '[agents.a]\nlimits = { %s }\n' "$1" >belljar.toml
    chown -R 1000:1000 /home/user
}

memory_hog='head -c 150000000 /dev/zero | tail -c 140000000 >/dev/null; echo "tail ended with $?"'
fork_bomb='i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all'
# How long it took, and how much of a processor its children had.
cpu_hog='read begin rest </proc/uptime
timeout 2 sh -c "while :; do :; done" & timeout 2 sh -c "while :; do :; done"; wait
read end rest </proc/uptime; echo "wall $begin $end"; times'

# hogs WHO PREFIX…: every kind, each stopped by its limit.
hogs() {
    hogs_who=$1
    shift
    project 'memory = "64M"'
    try "$hogs_who memory" "$@" "$belljar" exec --yes -- sh -c "$memory_hog"
    project 'pids = 24'
    try "$hogs_who pids" "$@" "$belljar" exec --yes -- sh -c "$fork_bomb"
    project 'cpu = 0.2'
    try "$hogs_who cpu" "$@" "$belljar" exec --yes -- sh -c "$cpu_hog"
}

try machine sh -c "cat /proc/self/cgroup; cat $groups/cgroup.controllers; sed -n 's/ cgroup[2]* .*//p' /proc/mounts"
project ''
try 'root doctor' "$belljar" doctor
hogs root

# What the kernel holds while a command runs.
project 'memory = "64M", pids = 24, cpu = 0.2'
"$belljar" exec --yes -- sh -c 'echo running; sleep 600' >/tmp/running 2>&1 &
running=$!
until grep -q running /tmp/running; do sleep 0.1; done
try held sh -c "cd $groups/belljar-run-*; grep . memory.max memory.swap.max pids.max cpu.max; wc -l <cgroup.procs"
kill "$running"
wait "$running"
try 'left over' sh -c "ls -d $groups/belljar-*"

# A tree that only looks like one.
project 'memory = "64M"'
try 'false tree' unshare --mount --propagation private sh -c "
    mount -t tmpfs none $groups && echo cpu memory pids >$groups/cgroup.subtree_control && exec $belljar exec --yes -- echo ran"

# An ordinary user in a group that is not theirs.
project 'pids = 24'
try 'user refused' as_user "$belljar" exec --yes -- echo ran
try 'user doctor' as_user "$belljar" doctor
project ''
try 'user unlimited' as_user "$belljar" exec --yes -- echo ran

# The same with a part of the tree made over to them.
mkdir -p $groups/made-over/session
echo '+cpu +memory +pids' >$groups/cgroup.subtree_control
chown 1000:1000 $groups/made-over $groups/made-over/cgroup.procs $groups/made-over/cgroup.subtree_control \
    $groups/made-over/session $groups/made-over/session/cgroup.procs
in_session() {
    sh -c "echo \$\$ >$groups/made-over/session/cgroup.procs && exec \"\$@\"" sh \
        env HOME=/home/user setpriv --reuid 1000 --regid 1000 --clear-groups "$@"
}
try 'delegated doctor' in_session "$belljar" doctor
hogs delegated in_session

# The switches that distributions throw.
project ''
echo 0 >/proc/sys/kernel/unprivileged_userns_clone
try 'clone switch exec' as_user "$belljar" exec --yes -- echo ran
try 'clone switch doctor' as_user "$belljar" doctor
try 'clone switch root' "$belljar" exec --yes -- echo ran
echo 1 >/proc/sys/kernel/unprivileged_userns_clone
try 'clone switch back' as_user "$belljar" exec --yes -- echo ran
echo 0 >/proc/sys/user/max_user_namespaces
try 'none allowed exec' as_user "$belljar" exec --yes -- echo ran
try 'none allowed doctor' as_user "$belljar" doctor
try 'none allowed root' "$belljar" exec --yes -- echo ran
