# Tries to make files of the class by changing what a call means while it is under way. Prints how often one was seen.
# Arguments: a directory, seconds, a program that must not run, a file with names of the class, and the project where the host
# works meanwhile, if it does.
import ctypes, json, os, socket, stat, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
until = time.monotonic() + float(sys.argv[2])
# A pipe that was made in a file's place has no reader.
C, W, X = os.O_CREAT, os.O_WRONLY | os.O_NONBLOCK, os.O_EXCL
AT_FDCWD = -100
for name in ("plain", "other", "swap", "deep", "fresh"):
    os.mkdir(name)
os.mkdir(".vscode")
evil = b"[core]\n\tfsmonitor = %s\n" % sys.argv[3].encode()
hook = b"#!/bin/sh\nexec %s\n" % sys.argv[3].encode()
with open(sys.argv[4]) as file:
    all_names = file.read().split()
# Here it is no git directory.
names = [name for name in all_names if not name.startswith("bare-repo/")]
project = sys.argv[5] if len(sys.argv) > 5 else None
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
    put_bait("plain/other")
    libc.link(b"plain/other", path)
    libc.rename(b"plain/other", path)


def make_link():
    """What is moved or linked is a link, a file and a directory in turn, in one step."""
    libc.symlink(b"plain", b"link")
    libc.rename(b"link", b"source")


def make_file():
    descriptor = libc.open(b"file", C | W, 0o600)
    if descriptor >= 0:
        os.close(descriptor)
    libc.rename(b"file", b"source")


def make_tree():
    libc.mkdir(b"tree", 0o700)
    put_bait("tree/tasks.json")
    libc.rename(b"tree", b"source")
    libc.rename(b"source", b"tree")


def see_stand_in():
    """Whether something leads to files of the class that is none itself."""
    try:
        found = os.lstat("fresh/.vscode").st_mode
    except OSError:
        return
    if stat.S_ISLNK(found) or os.path.lexists("fresh/.vscode/tasks.json"):
        seen["fresh/.vscode"] = seen.get("fresh/.vscode", 0) + 1
    quiet(os.unlink, "fresh/.vscode")
    quiet(os.unlink, "fresh/.vscode/tasks.json")
    quiet(os.rmdir, "fresh/.vscode")


def move_source():
    tried[0] += 1
    if libc.rename(b"source", b"fresh/.vscode") == 0:
        see_stand_in()


def link_source():
    tried[0] += 1
    if libc.link(b"source", b"fresh/.vscode") == 0:
        see_stand_in()


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


SIGNS = ("HEAD", "objects", "refs")
TREE = "linked/worktrees/tree/HEAD"


def put(name, text):
    descriptor = quiet(os.open, name, C | W | os.O_TRUNC)
    if descriptor is not None:
        os.write(descriptor, text)
        os.close(descriptor)


def make_linked():
    """A repository that is not called `.git`, and its part for a work tree."""
    os.makedirs("linked/worktrees/tree")
    put("linked/HEAD", b"ref: refs/heads/main\n")
    os.mkdir("linked/objects")
    os.mkdir("linked/refs")
    put("linked/worktrees/tree/commondir", b"../..\n")
    put(TREE, b"ref: refs/heads/main\n")


def take_signs():
    """What makes a git directory goes and comes, with sockets in its place meanwhile."""
    for with_tree in (False, True):
        if with_tree:
            quiet(os.rename, TREE, "away-tree")
        for name in SIGNS:
            quiet(os.rename, "linked/" + name, "away-" + name)
        for name in SIGNS:
            with socket.socket(socket.AF_UNIX) as made:
                quiet(made.bind, "linked/" + name)
        quiet(os.rename, "away-tree", TREE)
        for name in SIGNS:
            quiet(os.rename, "away-" + name, "linked/" + name)
            quiet(os.unlink, "linked/" + name)
        for name in reversed(SIGNS):
            quiet(os.rename, "away-" + name, "linked/" + name)
        quiet(os.rename, "away-tree", TREE)


def write_linked():
    put("linked/config", evil)
    quiet(os.unlink, "linked/config")


def look_linked():
    """git obeys the configuration as long as the work tree has its `HEAD`, because sockets will do for the rest."""
    try:
        before = os.stat(TREE)
        with open("linked/config", "rb") as file:
            is_evil = b"fsmonitor" in file.read()
        after = os.stat(TREE)
    except OSError:
        return
    if is_evil and (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns):
        seen["linked/config"] = seen.get("linked/config", 0) + 1


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


def put_bait(name):
    descriptor = quiet(os.open, name, C | W, 0o755)
    if descriptor is not None:
        os.write(descriptor, hook)
        os.close(descriptor)


def attack(name):
    # Of this process alone: an empty one would be a harmless configuration.
    bait = "bait-%d" % os.getpid()
    above = os.path.dirname(name)
    if above:
        quiet(os.makedirs, above, 0o777, True)
    quiet(os.truncate, name, 0)
    quiet(os.rename, name, "taken")
    put_bait(name)
    put_bait(bait)
    quiet(os.link, bait, name)
    quiet(os.rename, bait, name)
    quiet(os.symlink, bait, name)
    quiet(os.mkfifo, name)


def attack_all():
    for name in names:
        if time.monotonic() >= until:
            return
        attack(name)


def attack_project():
    for name in all_names:
        if time.monotonic() >= until:
            return
        attack(os.path.join(project, name))


any_path = ctypes.create_string_buffer(b"ordinary", 64)


def swap_any():
    for name in names:
        any_path.value = name.encode()
        any_path.value = b"ordinary-too"
        any_path.value = name.encode()
        # What concerns another place goes on: only Landlock stands between this and the name before it.
        any_path.value = b"/var/tmp/beside"


def open_any():
    tried[0] += 1
    descriptor = libc.open(any_path, C | W, 0o700)
    if descriptor >= 0:
        os.close(descriptor)
    libc.symlink(b"x", any_path)
    put_bait("bait")
    libc.rename(b"bait", any_path)
    quiet(os.unlink, "ordinary-too")
    quiet(os.unlink, "/var/tmp/beside")


def take_lock():
    """The host's git renames this over its configuration in a moment."""
    lock = os.path.join(project, ".git/config.lock")
    descriptor = quiet(os.open, lock, W | os.O_APPEND)
    if descriptor is not None:
        os.write(descriptor, evil)
        os.close(descriptor)
    if not os.path.lexists(lock):
        return
    quiet(os.link, lock, "lock")
    quiet(os.rename, lock, "lock")
    with_evil = quiet(os.open, "lock", C | W)
    if with_evil is not None:
        os.write(with_evil, evil)
        os.close(with_evil)
    quiet(os.unlink, lock)
    quiet(os.symlink, os.path.abspath("lock"), lock)
    quiet(os.rename, "lock", lock)
    descriptor = quiet(os.open, lock, C | W)
    if descriptor is not None:
        os.write(descriptor, evil)
        os.close(descriptor)
    quiet(os.unlink, lock)


def is_own_repository(name):
    if not name.endswith("/commondir"):
        return False
    try:
        with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK)) as file:
            return file.read() == "../..\n"
    except OSError:
        return True


def look():
    for name in names + ["deep/.vscode/tasks.json"]:
        # One look: a directory of that name may be made, and be gone at the second.
        try:
            is_directory = stat.S_ISDIR(os.lstat(name).st_mode)
        except OSError:
            continue
        if not is_directory and not is_own_repository(name):
            seen[name] = seen.get(name, 0) + 1
    try:
        with open("own/.git/config", "rb") as file:
            if b"fsmonitor" in file.read():
                seen["own/.git/config"] = seen.get("own/.git/config", 0) + 1
    except OSError:
        pass
    try:
        before = marks()
        with open("repo/config", "rb") as file:
            if b"fsmonitor" in file.read() and before == marks():
                seen["repo/config"] = seen.get("repo/config", 0) + 1
    except OSError:
        pass


def marks():
    """What tells that a repository was one all the time."""
    found = [os.stat("repo/" + name) for name in ("objects", "refs", "config")]
    return [(one.st_ino, one.st_ctime_ns) for one in found]


def run(acts):
    workers = [threading.Thread(target=forever(act)) for act in acts]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    look()


def apart(acts):
    """In a process of its own: threads of one keep each other from running."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        seen.clear()
        tried[0] = 0
        run(acts)
        os.write(writing, json.dumps([seen, tried[0]]).encode())
        os._exit(0)
    os.close(writing)
    return reading


def gather():
    for other in others:
        with os.fdopen(other) as file:
            found, tries = json.loads(file.read())
        tried[0] += tries
        for name, count in found.items():
            seen[name] = seen.get(name, 0) + count


sys.setswitchinterval(1e-5)
# By themselves first: every process more makes a moment between two calls harder to hit.
end, until = until, time.monotonic() + float(sys.argv[2]) / 3
others = [apart([act]) for act in (make_link, make_file, move_source)]
gather()
until = time.monotonic() + float(sys.argv[2]) / 6
others = [apart([act]) for act in (make_link, make_tree, make_file, link_source, move_source)]
gather()
until = time.monotonic() + float(sys.argv[2]) / 6
make_linked()
others = [apart([act]) for act in (take_signs, write_linked, look_linked)]
gather()
until = end
others = [apart([attack_all]), apart([swap_any, open_any])]
if project:
    others += [apart([attack_project]), apart([take_lock])]
run([swap_memory, open_swapped, flip_link, through_link, move_directory, make_in_moved, turn_descriptor, by_descriptor,
     give_names, write_config, complete, change_judged, look])
gather()
print("seen", sum(seen.values()), sorted(seen), "tries", tried[0], flush=True)
