# Tries to make files of the class by changing what a call means while it is under way. Prints how often one was seen.
# Arguments: a directory, seconds.
import ctypes, os, stat, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
until = time.monotonic() + float(sys.argv[2])
C, W, X = os.O_CREAT, os.O_WRONLY, os.O_EXCL
AT_FDCWD = -100
for name in ("plain", "other", "swap", "deep"):
    os.mkdir(name)
os.mkdir(".vscode")
evil = b"[core]\n\tfsmonitor = evil\n"
seen = {}
tried = [0]


def quiet(act, *arguments):
    tried[0] += 1
    try:
        return act(*arguments)
    except OSError:
        return None


def forever(act):
    def run():
        while time.monotonic() < until:
            act()
    return run


path = ctypes.create_string_buffer(b"ordinary", 32)


def swap_memory():
    path.value = b".envrc\0\0"
    path.value = b"ordinary"


def open_swapped():
    tried[0] += 1
    descriptor = libc.open(path, C | W, 0o600)
    if descriptor >= 0:
        os.close(descriptor)
    libc.mkdir(path, 0o700)
    libc.rmdir(path)
    libc.symlink(b"x", path)
    quiet(os.unlink, "ordinary")


def flip_link():
    quiet(os.unlink, "way")
    quiet(os.symlink, "plain", "way")
    quiet(os.unlink, "way")
    quiet(os.symlink, ".vscode", "way")


def through_link():
    descriptor = quiet(os.open, "way/tasks.json", C | W)
    if descriptor is not None:
        os.close(descriptor)
    quiet(os.unlink, "plain/tasks.json")


def move_directory():
    quiet(os.rename, "swap", "deep/.vscode")
    quiet(os.rename, "deep/.vscode", "swap")
    libc.renameat2(AT_FDCWD, b"plain", AT_FDCWD, b".vscode", 2)
    libc.renameat2(AT_FDCWD, b"plain", AT_FDCWD, b".vscode", 2)


def make_in_moved():
    quiet(lambda: os.close(os.open("swap/tasks.json", C | W)))
    quiet(os.unlink, "swap/tasks.json")


shared = os.dup(0)
places = [os.open("plain", os.O_RDONLY), os.open(".vscode", os.O_RDONLY)]


def turn_descriptor():
    os.dup2(places[0], shared)
    os.dup2(places[1], shared)


def by_descriptor():
    tried[0] += 1
    descriptor = libc.openat(shared, b"settings.json", C | W, 0o600)
    if descriptor >= 0:
        os.close(descriptor)
    quiet(os.unlink, "plain/settings.json")


def give_names():
    descriptor = quiet(os.open, ".", os.O_TMPFILE | os.O_RDWR)
    if descriptor is not None:
        libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % descriptor, AT_FDCWD, path, 0x400)
        os.close(descriptor)
    libc.link(b"plain/other", path)
    libc.rename(b"plain/other", path)


def write_config():
    """A configuration that was ordinary when it was opened."""
    quiet(os.mkdir, "repo")
    descriptor = quiet(os.open, "repo/config", C | W)
    if descriptor is not None:
        os.write(descriptor, b"[core]\n")
        os.write(descriptor, evil[7:])
        os.close(descriptor)


def complete():
    for name in ("objects", "refs"):
        quiet(os.mkdir, "repo/" + name)
    for name in ("objects", "refs", ):
        quiet(os.rmdir, "repo/" + name)
    quiet(os.unlink, "repo/config")


def change_judged():
    """A configuration that changes while it is judged."""
    quiet(os.mkdir, "own")
    quiet(os.mkdir, "own/.git")
    descriptor = quiet(os.open, "own/.git/config.lock", C | W | os.O_TRUNC)
    if descriptor is not None:
        os.write(descriptor, b"[core]\n\tbare = false\n")
        quiet(os.rename, "own/.git/config.lock", "own/.git/config")
        os.pwrite(descriptor, evil, 0)
        os.close(descriptor)


def look():
    for name in (".envrc", ".vscode/tasks.json", "deep/.vscode/tasks.json", ".vscode/settings.json"):
        # One look: a directory of that name may be made, and be gone at the second.
        try:
            is_directory = stat.S_ISDIR(os.lstat(name).st_mode)
        except OSError:
            continue
        if not is_directory:
            seen[name] = seen.get(name, 0) + 1
    try:
        with open("own/.git/config", "rb") as file:
            if b"evil" in file.read():
                seen["own/.git/config"] = seen.get("own/.git/config", 0) + 1
    except OSError:
        pass
    try:
        before = marks()
        with open("repo/config", "rb") as file:
            if b"evil" in file.read() and before == marks():
                seen["repo/config"] = seen.get("repo/config", 0) + 1
    except OSError:
        pass


def marks():
    """What tells that a repository was one all the time."""
    found = [os.stat("repo/" + name) for name in ("objects", "refs", "config")]
    return [(one.st_ino, one.st_ctime_ns) for one in found]


acts = [swap_memory, open_swapped, flip_link, through_link, move_directory, make_in_moved, turn_descriptor,
        by_descriptor, give_names, write_config, complete, change_judged, open_swapped, look, look]
workers = [threading.Thread(target=forever(act)) for act in acts]
sys.setswitchinterval(1e-5)
[worker.start() for worker in workers]
[worker.join() for worker in workers]
look()
print("seen", sum(seen.values()), sorted(seen), "tries", tried[0] > 100, file=sys.stdout)
