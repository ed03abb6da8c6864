# Prints what system calls answer in an empty directory, one line a check. The same lines are expected in a directory that is
# guarded and in one that is not.
import ctypes, errno, os, signal, stat, struct, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


def shown(value):
    return value if not isinstance(value, (bytes, bytearray)) else value.decode()


def check(name, act):
    try:
        print(name, shown(act()))
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))


def call(function, *arguments):
    answer = function(*arguments)
    if answer == -1:
        raise OSError(ctypes.get_errno(), "")
    return answer


def opened(path, flags, mode=0o666, dir_fd=None):
    descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    os.close(descriptor)
    return "opened"


def mode(path):
    return oct(os.lstat(path).st_mode)


def put(path, text="x"):
    with open(path, "w") as file:
        file.write(text)
    return text


def content(path):
    with open(path) as file:
        return file.read()


os.chdir(sys.argv[1])
W, C, X = os.O_WRONLY, os.O_CREAT, os.O_EXCL
os.umask(0o022)
check("create", lambda: opened("a", C | W))
check("mode", lambda: mode("a"))
check("exclusive on existing", lambda: opened("a", C | X | W))
check("exclusive new", lambda: opened("a2", C | X | W))
check("no such file", lambda: opened("none", W))
check("no such directory", lambda: opened("none/x", C | W))
check("file as directory", lambda: opened("a/x", C | W))
check("empty", lambda: opened("", C | W))
check("slash new", lambda: opened("new/", C | W))
check("slash file", lambda: opened("a/", W))
check("dot", lambda: opened(".", W))
check("dot new", lambda: opened(".", C | W))
check("dotdot", lambda: opened("..", C | W))
check("255", lambda: opened("n" * 255, C | W))
check("256", lambda: opened("n" * 256, C | W))
check("4095", lambda: opened("./" * 2047 + "b", C | W))
check("4096", lambda: opened("./" * 2048, C | W))
check("5000", lambda: opened("./" * 2500 + "b", C | W))
check("read only with create", lambda: opened("ro", C))
check("truncating read", lambda: (put("tr", "123"), opened("tr", os.O_TRUNC), content("tr"))[2])
check("append", lambda: (put("ap", "1"), os.write(os.open("ap", W | os.O_APPEND), b"2"), content("ap"))[2])
for mask in (0, 0o077, 0o777, 0o27):
    os.umask(mask)
    check(f"umask {mask:o}", lambda: (opened(f"m{mask}", C | W, 0o777), mode(f"m{mask}"))[1])
    check(f"umask {mask:o} dir", lambda: (os.mkdir(f"md{mask}", 0o777), mode(f"md{mask}"))[1])
os.umask(0o022)
check("mkdir", lambda: os.mkdir("d"))
check("mkdir again", lambda: os.mkdir("d"))
check("mkdir slash", lambda: os.mkdir("d3///"))
check("mkdir dot", lambda: os.mkdir("."))
check("mkdir below file", lambda: os.mkdir("a/d"))
check("mkdir sticky", lambda: (os.mkdir("st", 0o1777), mode("st"))[1])
check("setgid directory", lambda: (os.mkdir("sg"), os.chmod("sg", 0o2755), os.mkdir("sg/x"), mode("sg/x"))[3])
check("directory for writing", lambda: opened("d", W))
check("directory with create", lambda: opened("d", C))
check("O_DIRECTORY on file", lambda: opened("a", W | os.O_DIRECTORY))
check("symlink", lambda: os.symlink("a", "l"))
check("symlink again", lambda: os.symlink("a", "l"))
check("symlink empty", lambda: os.symlink("", "le"))
check("symlink slash", lambda: os.symlink("a", "ls/"))
check("through a link", lambda: (os.write(os.open("l", W | os.O_TRUNC), b"via"), content("a"))[1])
check("nofollow", lambda: opened("l", W | os.O_NOFOLLOW))
check("exclusive link", lambda: opened("l", C | X | W))
check("dangling", lambda: (os.symlink("later", "dl"), opened("dl", C | W), os.path.exists("later"))[2])
check("dangling exclusive", lambda: (os.symlink("never", "dn"), opened("dn", C | X | W)))
check("dangling elsewhere", lambda: (os.symlink("none/x", "de"), opened("de", C | W)))
check("loop", lambda: (os.symlink("lp2", "lp1"), os.symlink("lp1", "lp2"), opened("lp1", C | W)))
check("link to a directory", lambda: (os.symlink("d", "ld"), opened("ld/f", C | W), os.listdir("d"))[2])
check("absolute link", lambda: (os.symlink(os.getcwd() + "/abs", "la"), opened("la", C | W), os.path.exists("abs"))[2])
check("out and back", lambda: opened("d/../ob", C | W))
check("dirfd", lambda: opened("f2", C | W, dir_fd=os.open("d", os.O_RDONLY)))
check("O_PATH dirfd", lambda: opened("f3", C | W, dir_fd=os.open("d", os.O_PATH)))
check("bad dirfd", lambda: opened("f3", C | W, dir_fd=999))
check("file as dirfd", lambda: opened("f3", C | W, dir_fd=os.open("a", os.O_RDONLY)))
check("absolute with bad dirfd", lambda: opened(os.getcwd() + "/abd", C | W, dir_fd=999))
check("bad address", lambda: call(libc.open, ctypes.c_void_p(8), C | W, 0o600))
check("null", lambda: call(libc.mkdir, None, 0o700))
check("rename", lambda: os.rename("a2", "a3"))
check("rename missing", lambda: os.rename("a2", "a4"))
check("rename onto", lambda: (put("r1", "1"), put("r2", "2"), os.rename("r1", "r2"), content("r2"))[3])
check("rename itself", lambda: os.rename("r2", "r2"))
check("rename directory", lambda: (os.mkdir("rd"), put("rd/x"), os.rename("rd", "rd2"), os.listdir("rd2"))[3])
check("rename onto full directory", lambda: (os.mkdir("re"), os.rename("re", "rd2")))
check("rename file onto directory", lambda: os.rename("r2", "re"))
check("rename directory onto file", lambda: os.rename("re", "r2"))
check("rename into itself", lambda: os.rename("rd2", "rd2/y"))
check("rename dot", lambda: os.rename(".", "q"))
check("rename slash", lambda: os.rename("r2/", "r5"))
check("rename directory slash", lambda: os.rename("rd2/", "rd3/"))
check("rename link", lambda: (os.rename("l", "l9"), os.readlink("l9"))[1])
renameat2 = lambda a, b, flags: call(libc.renameat2, AT_FDCWD, a, AT_FDCWD, b, flags)
check("noreplace", lambda: renameat2(b"a", b"a3", 1))
check("noreplace free", lambda: renameat2(b"a3", b"a5", 1))
check("exchange", lambda: (put("e1", "1"), put("e2", "2"), renameat2(b"e1", b"e2", 2), content("e1"))[3])
check("exchange missing", lambda: renameat2(b"e1", b"none", 2))
check("exchange both", lambda: renameat2(b"e1", b"e2", 3))
check("rename flags", lambda: renameat2(b"e1", b"e2", 64))
check("link", lambda: (os.link("a", "h"), os.stat("h").st_nlink)[1])
check("link again", lambda: os.link("a", "h"))
check("link missing", lambda: os.link("none", "h2"))
check("link directory", lambda: os.link("d", "h3"))
check("link of a link", lambda: (os.link("dl", "h4", follow_symlinks=False), os.path.islink("h4"))[1])
linkat = lambda a, b, flags: call(libc.linkat, AT_FDCWD, a, AT_FDCWD, b, flags)
check("link followed", lambda: (linkat(b"dl", b"h5", 0x400), os.path.islink("h5"))[1])
check("link slash", lambda: os.link("a", "h6/"))
check("truncate", lambda: (put("t", "12345"), os.truncate("t", 2), content("t"))[2])
check("truncate longer", lambda: (os.truncate("t", 4), os.stat("t").st_size)[1])
check("truncate missing", lambda: os.truncate("none", 2))
check("truncate directory", lambda: os.truncate("d", 2))
check("truncate negative", lambda: call(libc.truncate, b"t", ctypes.c_long(-1)))
check("truncate link", lambda: (os.symlink("t", "tl"), os.truncate("tl", 1), os.stat("t").st_size)[2])
check("mknod file", lambda: (os.mknod("k", 0o600 | stat.S_IFREG), mode("k"))[1])
check("mknod again", lambda: os.mknod("k", 0o600 | stat.S_IFREG))
check("mkfifo", lambda: (os.mkfifo("p"), mode("p"))[1])
check("fifo without reader", lambda: opened("p", W | os.O_NONBLOCK))
check("fifo both", lambda: opened("p", os.O_RDWR))
check("block device", lambda: os.mknod("bd", 0o600 | stat.S_IFBLK, os.makedev(1, 1)))


def through_pipe():
    writer = subprocess.Popen(["sh", "-c", "echo through > p"])
    found = content("p")
    writer.wait()
    return found.strip()


check("fifo", through_pipe)


def unnamed():
    descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(descriptor, b"unnamed")
    linkat(f"/proc/self/fd/{descriptor}".encode(), b"named", 0x400)
    return content("named"), mode("named")


check("O_TMPFILE", unnamed)
check("O_TMPFILE exclusive", lambda: linkat(b"/proc/self/fd/%d" % os.open(".", os.O_TMPFILE | X | os.O_RDWR), b"n2", 0x400))
check("O_TMPFILE in a file", lambda: os.open("a", os.O_TMPFILE | os.O_RDWR))
check("/dev/null", lambda: opened("/dev/null", W))
check("/dev/full", lambda: os.write(os.open("/dev/full", W), b"x"))
check("/dev/fd", lambda: (put("df", "1"), opened(f"/dev/fd/{os.open('df', os.O_RDWR)}", W | os.O_TRUNC), content("df"))[2])
check("/proc/self/fd", lambda: opened(f"/proc/self/fd/{os.open('df', os.O_RDONLY)}", W))
held = os.open("d", os.O_PATH)
below = f"/proc/self/fd/{held}"
check("below a descriptor", lambda: (put(f"{below}/bf", "1"), content("d/bf"))[1])
check("below a descriptor of /dev", lambda: (put(f"/dev/fd/{held}//bg", "1"), content("d/bg"))[1])
check("below a descriptor of the thread", lambda: (put(f"/proc/thread-self/fd/{held}/bh", "1"), content("d/bh"))[1])
check("above a descriptor", lambda: (put(f"{below}/../bu", "1"), content("bu"))[1])
check("below a descriptor, a directory", lambda: (os.mkdir(f"{below}/bd"), mode("d/bd"))[1])
check("below a descriptor, moved", lambda: (os.rename(f"{below}/bf", f"{below}/bm"), content("d/bm"))[1])
check("below a descriptor, linked", lambda: (os.link(f"{below}/bg", f"{below}/bl"), os.stat("d/bl").st_nlink)[1])
check("below a descriptor, truncated", lambda: (os.truncate(f"{below}/bh", 0), os.stat("d/bh").st_size)[1])
check("below a descriptor, exclusive", lambda: opened(f"{below}/bh", C | X | W))
check("below a descriptor, missing", lambda: opened(f"{below}/none", W))
check("below a descriptor, no directory", lambda: opened(f"{below}/none/x", C | W))
check("below a descriptor, by a link", lambda: (os.symlink(f"{below}/later", "bs"), opened("bs", C | W), os.path.exists("d/later"))[2])
check("below a descriptor, unnamed", lambda: stat.S_IFMT(os.fstat(os.open(below, os.O_TMPFILE | os.O_RDWR)).st_mode))
check("below a descriptor, itself", lambda: os.mkdir(f"{below}/"))
check("below a file", lambda: opened(f"/proc/self/fd/{os.open('a', os.O_RDONLY)}/x", C | W))
check("below a closed descriptor", lambda: opened("/proc/self/fd/999/x", C | W))
check("below another name of a descriptor", lambda: opened(f"/proc/self/fd/0{held}/x", C | W))
check("/proc/self/comm", lambda: (put("/proc/self/comm", "named"), content("/proc/self/comm"))[1])


def lowest():
    free = os.open("a", os.O_RDONLY)
    os.close(free)
    descriptor = os.open("low", C | W)
    os.close(descriptor)
    return descriptor == free


check("lowest descriptor", lowest)
raw = lambda flags: (lambda fd: (fd, libc.fcntl(fd, 1, 0)))(call(libc.open, b"ce", C | W | flags, 0o600))[1]
check("cloexec", lambda: raw(os.O_CLOEXEC))
check("no cloexec", lambda: raw(0))
flags = lambda extra: libc.fcntl(call(libc.open, b"ce", W | extra, 0o600), 3, 0) & (os.O_NONBLOCK | os.O_APPEND | 3)
check("status flags", lambda: [flags(0), flags(os.O_NONBLOCK), flags(os.O_APPEND)])


def too_many():
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    held = []
    try:
        while True:
            held.append(os.open("a", os.O_RDONLY))
    except OSError:
        pass
    try:
        opened("emfile", C | W)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


check("EMFILE", too_many)
print("EMFILE leaves", os.path.exists("emfile") and "a file" or "nothing")
check("closed directory", lambda: (os.mkdir("cl"), os.chmod("cl", 0o500), opened("cl/x", C | W)))
check("closed file", lambda: (put("cf"), os.chmod("cf", 0o400), opened("cf", W)))
check("no search", lambda: (os.mkdir("ns"), os.chmod("ns", 0o600), opened("ns/x", C | W)))
os.chmod("cl", 0o700), os.chmod("ns", 0o700)


def interrupted():
    """Signals while callers wait: none is seen, and nothing is done twice."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    # A call that was not heard yet is begun again; without this it would say EINTR.
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    wrong = 0
    for number in range(700):
        try:
            os.close(os.open(f"s{number}", C | X | W))
            os.mkdir(f"sd{number}")
            os.rename(f"s{number}", f"sr{number}")
        except OSError:
            wrong += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    return wrong


check("under signals", interrupted)


def not_restarted():
    """Handlers that do not restart calls: a call that says EINTR has done nothing, and can be made again."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    wrong = []

    def again(act, made):
        while (answer := act()) == -1:
            if ctypes.get_errno() != errno.EINTR:
                wrong.append(errno.errorcode[ctypes.get_errno()])
                break
            if os.path.lexists(made):
                wrong.append("done")
        return answer

    for number in range(500):
        file, moved, directory = (name % number for name in (b"nr%d", b"nm%d", b"nd%d"))
        os.close(again(lambda: libc.open(file, C | X | W, 0o600), file))
        again(lambda: libc.mkdir(directory, 0o700), directory)
        again(lambda: libc.rename(file, moved), moved)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return wrong


check("under signals that interrupt", not_restarted)


def threads():
    wrong = []

    def work(own):
        for number in range(200):
            try:
                put(f"th{own}-{number}", str(number))
                os.rename(f"th{own}-{number}", f"tr{own}-{number}")
                if content(f"tr{own}-{number}") != str(number):
                    wrong.append(number)
            except OSError as error:
                wrong.append(error)

    all_of_them = [threading.Thread(target=work, args=(own,)) for own in range(8)]
    [one.start() for one in all_of_them]
    [one.join() for one in all_of_them]
    return len(wrong)


check("threads", threads)


def killed():
    for _ in range(40):
        child = subprocess.Popen(["sh", "-c", "while :; do : > kf; mkdir kd 2>/dev/null; rmdir kd; done"], stderr=subprocess.DEVNULL)
        child.kill()
        child.wait()
    return opened("after", C | W)


check("callers that are killed", killed)


def gone():
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    try:
        return opened("x", C | W)
    finally:
        os.chdir(sys.argv[1])


check("deleted directory", gone)


def acl(*entries):
    """Access control lists as the kernel stores them: kind, permissions, user or group."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


USER, SOMEBODY, GROUP, MASK, OTHER, NOBODY = 1, 2, 4, 0x10, 0x20, 0xFFFFFFFF
plain_acl = acl((USER, 7, NOBODY), (GROUP, 7, NOBODY), (OTHER, 0, NOBODY))
named_acl = acl((USER, 7, NOBODY), (SOMEBODY, 6, os.getuid()), (GROUP, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 4, NOBODY))


def access(path):
    """Mode and access control lists."""
    lists = [name for name in os.listxattr(path) if name.startswith("system.posix_acl")]
    return mode(path), [(name, os.getxattr(path, name).hex()) for name in sorted(lists)]


def inherited(own, default):
    os.mkdir(own)
    os.setxattr(own, "system.posix_acl_default", default)
    os.umask(0o077)
    try:
        opened(f"{own}/file", C | W, 0o666)
        opened(f"{own}/private", C | X | W, 0o640)
        os.mkdir(f"{own}/directory")
        os.mknod(f"{own}/node", 0o666 | stat.S_IFREG)
        os.mkfifo(f"{own}/pipe")
        descriptor = os.open(own, os.O_TMPFILE | os.O_RDWR, 0o666)
        linkat(b"/proc/self/fd/%d" % descriptor, f"{own}/unnamed".encode(), 0x400)
    finally:
        os.umask(0o022)
    return [access(f"{own}/{name}") for name in sorted(os.listdir(own))]


check("default ACL", lambda: inherited("acl", plain_acl))
check("default ACL with a name", lambda: inherited("acl2", named_acl))
check("setgid file in a setgid directory", lambda: (opened("sg/f", C | W, 0o2775), mode("sg/f"), os.stat("sg/f").st_gid == os.stat("sg").st_gid))
check("setgid directory below", lambda: (os.mkdir("sg/d"), os.mkdir("sg/d/d"), mode("sg/d/d"))[2])
check("setuid file", lambda: (opened("su", C | W, 0o4755), mode("su"))[1])
check("in a sticky directory", lambda: (put("st/a"), os.rename("st/a", "st/b"), os.link("st/b", "st/c"), sorted(os.listdir("st")))[3])
