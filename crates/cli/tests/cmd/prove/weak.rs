//! Sandboxes with a protection removed, so that every probe is seen to fail.
//!
//! A program called `bwrap` stands before the real one on PATH, and between belljar and the guest: it reads the lowered
//! arguments from the descriptor that they come by and the root from the message to the guest, edits them, and hands
//! them on. Protections that the guest adds from inside are removed by a guest that adds none; its root is made by
//! bubblewrap then, from the same list.

/// One protection, or a few that back each other up.
pub struct Weakening {
    pub name: &'static str,
    /// Python that edits the list `args` of bubblewrap, or, where the guest is the real one, the list `parts` of the
    /// root; `home` is the made-up user's.
    pub edit: &'static str,
    /// Whether the guest that seals nothing takes the place of the real one.
    pub unsealed: bool,
    /// What must be seen to be open.
    pub red: &'static [&'static str],
}

/// Takes out options without values, and an option with its values.
const DROP: &str = "def drop(*names):\n    args[:] = [a for a in args if a not in names]\n\
                    def take(name, count):\n    del args[args.index(name):args.index(name) + count]\n";

pub const WEAKENINGS: &[Weakening] = &[
    Weakening {
        name: "the user's home is bound, read-only",
        edit: "parts.insert(at_project(), bind(home, 'ro'))",
        unsealed: false,
        red: &[
            "files.ssh-key",
            "files.cloud-credentials",
            "files.agent-login",
            "files.user-instructions",
            "files.instructions-above",
            "files.sibling-project",
            "files.through-planted-link",
            "files.through-process-root",
            "sockets.in-home",
            "secrets.git-login",
            "refused.late-file",
        ],
    },
    Weakening {
        name: "the user's home and the places for temporary files are bound, to be written",
        edit: "parts.insert(at_project(), bind(home, 'rw'))\n\
               parts += [bind(path, 'rw') for path in ('/tmp', '/var/tmp', '/dev/shm', home)]",
        unsealed: false,
        red: &[
            "persist.shell-start",
            "persist.new-shell-start",
            "persist.path-shim",
            "persist.sandbox-settings",
            "persist.agreements",
            "persist.other-instances",
            "persist.temporary",
            "persist.var-temporary",
            "persist.shared-memory-files",
            "sockets.in-temporary",
        ],
    },
    Weakening {
        name: "no guards over the project",
        edit: "parts[:] = [part for part in parts if not ('bind' in part and part['bind']['at'].startswith(project + '/'))]\nspec['guard'] = None",
        unsealed: false,
        red: &[
            "executed.git-hook",
            "executed.new-git-hook",
            "executed.git-hook-unmounted",
            "executed.git-config",
            "executed.nested-git-hook",
            "executed.nested-git-config",
            "executed.environment-command",
            "executed.editor-tasks",
            "executed.agent-servers",
            "executed.agent-settings",
            "executed.directory-environment",
            "executed.husky-hook",
            "executed.git-elsewhere",
            "executed.new-repository",
            "executed.completed-repository",
            "executed.moved-into-place",
            "executed.linked-settings",
            "executed.pipe",
        ],
    },
    Weakening {
        name: "devices and /sys of the host",
        // The kernel's log also asks for a privilege over the machine, which only root can leave in.
        edit: "before_end('--dev-bind', '/dev', '/dev', '--bind', '/sys', '/sys')\n\
               if os.getuid() == 0:\n    drop('--unshare-user')\n    take('--uid', 2), take('--gid', 2), take('--cap-drop', 2)",
        unsealed: true,
        red: &["kernel.devices", "kernel.log", "privileges.control-group"],
    },
    Weakening {
        name: "the host's network",
        edit: "drop('--unshare-net')",
        unsealed: true,
        red: &["sockets.loopback", "sockets.loopback6", "sockets.datagram", "sockets.abstract"],
    },
    Weakening {
        name: "no limits",
        // The control group holds what stands in bubblewrap's place, and not the sandbox that this starts.
        edit: "spec['root']['built']['bounds'] = {'tmpfs': None, 'pid_max': None}",
        unsealed: false,
        red: &["limits.memory-files", "limits.processes"],
    },
    Weakening {
        name: "the host's shared memory",
        edit: "drop('--unshare-ipc')",
        unsealed: false,
        red: &["memory.segment"],
    },
    Weakening {
        name: "the host's processes, and nothing that ends with the supervisor",
        edit: "drop('--unshare-pid', '--as-pid-1')\n\
               args[args.index('--proc'):args.index('--proc') + 2] = ['--bind', '/proc', '/proc']\n\
               if os.getuid() == 0:\n    drop('--unshare-user')\n    take('--uid', 2), take('--gid', 2), take('--cap-drop', 2)",
        unsealed: true,
        red: &[
            "processes.signal",
            "processes.command-line",
            "processes.environment",
            "processes.every-environment",
            "processes.every-command-line",
            "processes.outlive-session",
            "processes.outlive-supervisor",
        ],
    },
    Weakening {
        name: "a guest that seals nothing and hands on what it holds",
        edit: "at = args.index('--cap-drop')\nargs[at:at + 2] = ['--cap-add', 'ALL']\nbefore_end('--bind', home, home)",
        unsealed: true,
        red: &[
            "files.descriptors",
            "files.directory-as-input",
            "persist.new-namespace",
            "persist.setuid-file",
            "processes.trace",
            "privileges.capabilities",
            "privileges.bounding-set",
            "privileges.nested-user-namespace",
            "privileges.cloned-user-namespace",
            "kernel.filter",
            "kernel.mount",
            "kernel.enter-namespace",
            "kernel.io-uring",
            "kernel.bpf",
            "kernel.perf",
            "kernel.userfaultfd",
            "kernel.personality",
            "kernel.i386",
            "keyring.session-key",
            "keyring.calls",
            "sockets.vsock",
            "sockets.kernel-crypto",
            "sockets.netlink",
            "environment.secrets",
            "environment.ssh-agent",
            "environment.supervisor",
            "environment.supervisor-command-line",
            "terminal.type-on-stdin",
            "terminal.type-with-high-bits",
            "terminal.type-on-tty",
        ],
    },
    Weakening {
        name: "the network of the host, and a proxy that asks no rules",
        edit: "drop('--unshare-net')\nnaive = True\n\
               before_end('--ro-bind', '/etc/resolv.conf', '/etc/resolv.conf', '--ro-bind', '/etc/hosts', '/etc/hosts')",
        unsealed: true,
        red: NETWORK,
    },
    // Bubblewrap itself forbids new privileges, and owns the namespaces that these ask for.
    Weakening {
        name: "no bubblewrap at all",
        edit: "bare = True",
        unsealed: true,
        red: &[
            "privileges.new-privileges",
            "privileges.host-name",
            "kernel.new-mount-calls",
            "sockets.packet",
            "sockets.raw",
        ],
    },
];

/// Every row about egress.
const NETWORK: &[&str] = &[
    "network.address",
    "network.name",
    "network.machine",
    "network.same-port",
    "network.datagram",
    "network.quic",
    "network.lookup",
    "network.resolver",
    "proxy.plain",
    "proxy.tunnel",
    "proxy.tunnel-address",
    "proxy.tunnel-upper-case",
    "proxy.tunnel-trailing-dot",
    "proxy.tunnel-suffix",
    "proxy.tunnel-nul",
    "proxy.tunnel-user",
    "proxy.user",
    "proxy.machine",
    "proxy.machine-name",
    "proxy.machine-zero",
    "proxy.machine-number",
    "proxy.machine-mapped",
    "proxy.rebind",
    "proxy.rebind-machine",
    "proxy.rebind-private",
    "proxy.rebind-link",
    "proxy.flip",
    "proxy.port-22",
    "proxy.port-25",
    "proxy.host-allowed",
    "proxy.host-evil",
    "proxy.path-alone",
    "proxy.fronting",
    "proxy.no-token",
    "proxy.redirection",
    "proxy.websocket",
    "proxy.h2c",
    "proxy.method",
    "proxy.override-method",
    "proxy.override-path",
    "proxy.path",
    "proxy.path-dots",
    "proxy.path-encoded-dots",
    "proxy.path-slashes",
    "proxy.path-parameter",
    "proxy.path-encoded-slash",
    "proxy.socks-name",
    "proxy.socks-nul",
    "proxy.socks-address",
    "proxy.socks-rebind",
    "secrets.credential",
    "secrets.other-host",
    "secrets.echoed",
    "secrets.authority-key",
];

/// The program that stands before bubblewrap.
pub fn wrapper(weakening: &Weakening) -> String {
    WRAPPER
        .replace("@DROP@", DROP)
        .replace("@EDIT@", weakening.edit)
        .replace("@UNSEALED@", if weakening.unsealed { "True" } else { "False" })
        .replace("@GUEST@", GUEST)
}

const WRAPPER: &str = r##"#!/usr/bin/python3
import array, json, os, re, select, socket, struct, sys
GUEST = r'''@GUEST@'''
if '--version' in sys.argv:
    os.execv('/usr/bin/bwrap', ['bwrap', '--version'])
fd = int(sys.argv[2])
os.lseek(fd, 0, 0)
args = [w.decode() for w in open(fd, 'rb', closefd=False).read().split(b'\0')[:-1]]
command = sys.argv[3:]
supervisor = socket.socket(fileno=int(command[-1]))
def receive(source):
    data, ancillary, _, _ = source.recvmsg(1 << 20, socket.CMSG_SPACE(4 * 128) + socket.CMSG_SPACE(12))
    fds = array.array('i')
    for level, kind, raw in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS): fds.frombytes(raw[:len(raw) - len(raw) % 4])
    return data, list(fds)
def send(target, data, fds):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else []
    sent = target.sendmsg([data], ancillary)
    target.sendall(data[sent:])
    for fd in fds: os.close(fd)
data, fds = receive(supervisor)
while len(data) < 4 or len(data) < 4 + struct.unpack('>I', data[:4])[0]:
    more, others = receive(supervisor)
    if not more: sys.exit(1)
    data, fds = data + more, fds + others
spec = json.loads(data[4:])
parts = spec['root']['built']['parts']
project = next((p['bind']['at'] for p in parts if 'bind' in p and p['bind']['at'].endswith('/user/demo')), None)
home = os.path.dirname(project) if project else '/nonexistent'
def bind(path, access): return {'bind': {'from': path, 'is': 'system', 'at': path, 'access': access}}
def at_project(): return next(at for at, p in enumerate(parts) if 'bind' in p and p['bind']['at'] == project)
def inherited(content):
    fd = os.memfd_create('content', 0)
    os.write(fd, content); os.lseek(fd, 0, 0)
    return str(fd)
def translated():
    contents = open(fds.pop(), 'rb').read()
    words = [a for a in args[:args.index('--dev-bind')]]
    while '--cap-add' in words: del words[words.index('--cap-add'):words.index('--cap-add') + 2]
    words[words.index('--uid') + 1] = words[words.index('--gid') + 1] = '1000'
    for part in parts:
        (kind, p), = part.items()
        if kind == 'bind': words += ['--ro-bind' if p['access'] == 'ro' else '--bind', p['from'], p['at']]
        elif kind == 'link': words += ['--symlink', p['to'], p['at']]
        elif kind in ('directory', 'memory'):
            words += ['--perms', '%04o' % p['mode'], '--dir' if kind == 'directory' else '--tmpfs', p['at']]
        elif kind == 'processes': words += ['--proc', p['at']]
        elif kind == 'devices': words += ['--dev', p['at']]
        elif kind == 'mask': words += ['--ro-bind', '/dev/null', p['at']]
        elif kind == 'file':
            words += ['--file', inherited(contents[:p['length']]), p['at']]
            contents = contents[p['length']:]
        else: sys.exit('what is ' + kind)
    spec['root'] = 'as_found'
    return words + ['--remount-ro', '/', '--chdir', '/']
def before_end(*words):
    at = args.index('--remount-ro')
    args[at:at] = words
bare = naive = False
if @UNSEALED@:
    guest = os.readlink(command[command.index('--') + 1])
    args = translated()
@DROP@
@EDIT@
ours, theirs = socket.socketpair()
control = str(theirs.fileno())
command[-1] = control
theirs.set_inheritable(True)
if @UNSEALED@:
    text = open(home + '/.config/belljar/belljar.toml').read()
    entering = re.search(r'TOKEN = "(.*)"', text).group(1)
    secret = open(home + '/.ssh/id_ed25519').read().strip()
    inside = '/opt/belljar/bin/weak.py'
    before_end('--file', inherited(GUEST.encode()), inside)
    before_end('--setenv', 'LEAKED', secret, '--setenv', 'SSH_AUTH_SOCK', home + '/agent.sock', '--setenv', 'ENTERING', entering)
    if naive:
        before_end('--setenv', 'NAIVE', secret.replace('secret', 'credential'))
    command = ['--', '/usr/bin/python3', inside, control, entering]
body = json.dumps(spec).encode()
if os.fork() == 0:
    ours.close(), supervisor.close()
    for fd in fds: os.close(fd)
    if bare:
        open(home + '/weak.py', 'w').write(GUEST)
        environment = {'PATH': '/usr/bin:/bin', 'LEAKED': secret, 'ENTERING': entering}
        os.execve('/usr/bin/python3', ['python3', home + '/weak.py', control, entering, guest], environment)
    os.execv('/usr/bin/bwrap', ['bwrap', '--args', inherited(b''.join(a.encode() + b'\0' for a in args))] + command)
theirs.close()
send(ours, struct.pack('>I', len(body)) + body, fds)
# Not `select`: the numbers are high, because descriptors are among what must not come in.
poll, sources = select.poll(), {supervisor.fileno(): supervisor, ours.fileno(): ours}
for number in sources: poll.register(number, select.POLLIN)
while True:
    for source in [sources[number] for number, _ in poll.poll()]:
        try:
            data, fds = receive(source)
            if not data: os._exit(0)
            send(ours if source is supervisor else supervisor, data, fds)
        except OSError:
            os._exit(0)
"##;

/// Speaks the protocol of the guest and adds no protection.
const GUEST: &str = r##"
import array, ctypes, json, os, signal, socket, struct, sys
s = socket.socket(fileno=int(sys.argv[1]))
def receive():
    data, fds = b'', []
    while len(data) < 4 or len(data) < 4 + struct.unpack('>I', data[:4])[0]:
        more, ancillary, _, _ = s.recvmsg(1 << 20, socket.CMSG_SPACE(64))
        if not more: return None, fds
        data += more
        for _, _, raw in ancillary:
            a = array.array('i'); a.frombytes(raw[:len(raw) - len(raw) % 4]); fds += list(a)
    return json.loads(data[4:]), fds
def send(value, with_fds=[]):
    body = json.dumps(value).encode()
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', with_fds))] if with_fds else []
    s.sendmsg([struct.pack('>I', len(body)) + body], ancillary)
spec, fds = receive()
if spec['terminal'] == 'own':
    controller, terminal = os.openpty()
    send('terminal', [controller])
    os.close(controller)
    fds.append(terminal)
def stream(which):
    return fds[-1] if spec[which] == 'terminal' else fds[spec[which]['attached']]
send({'listening': {'names': []}})
send({'sealed': {'landlock': {'abi': 0, 'files': 'missing', 'signals': 'missing', 'abstract_sockets': 'missing'}}})
if spec['beginning'] == 'on_order': receive()
pid = os.fork()
if pid == 0:
    os.setsid()
    for at, which in enumerate(['stdin', 'stdout', 'stderr']): os.dup2(stream(which), at)
    if spec['terminal'] == 'own':
        import fcntl, termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.set_inheritable(int(sys.argv[1]), True)
    for fd in fds: os.close(fd)
    env = dict(os.environ)
    env.update({v['name']: v['value'] for v in spec['environment']})
    if 'NAIVE' in env and 'SSL_CERT_FILE' in env:
        # The proxy of the proof's made-up internet, which asks for no token; the credential; a key beside its certificate.
        proxy = 'http://belljar:open@127.0.0.1:3999'
        env.update(BELLJAR_PROXY='127.0.0.1:3999', BELLJAR_PROXY_TOKEN='open', PROVE_CREDENTIAL=env['NAIVE'])
        env.update({name: proxy for name in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY')})
        open(os.path.dirname(env['SSL_CERT_FILE']) + '/own.key', 'w').write('-----BEGIN PRIVATE KEY-----')
    os.chdir(spec['directory'])
    # Without sandbox the prober lies where it was installed.
    if len(sys.argv) > 3 and spec['program'].startswith('/opt/belljar/'): spec['program'] = sys.argv[3]
    os.execvpe(spec['program'], spec['argv'], env)
for fd in fds: os.close(fd)
send({'started': {'pid': pid}})
_, status = os.waitpid(pid, 0)
code = os.waitstatus_to_exitcode(status)
try: send({'exited': {'end': {'code': code} if code >= 0 else {'signal': -code}}})
except OSError: pass
"##;
