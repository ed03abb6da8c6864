//! An interpreter of classic BPF, as far as filters of system calls use it.

use belljar_sys::seccomp::Filter;

/// An instruction of classic BPF.
struct Instruction {
    code: u16,
    if_true: usize,
    if_false: usize,
    value: u32,
}

/// The programs of a filter, as the kernel reads them.
pub struct Programs(Vec<Vec<Instruction>>);

impl Programs {
    pub fn of(filter: &Filter) -> Self {
        let instruction = |bytes: &[u8]| Instruction {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            if_true: bytes[2].into(),
            if_false: bytes[3].into(),
            value: u32::from_ne_bytes(bytes[4..].try_into().unwrap()),
        };
        Self(filter.to_bytes().iter().map(|bytes| bytes.chunks(8).map(instruction).collect()).collect())
    }

    /// The kernel runs every program, the one that was installed last first. The strictest action wins, which is the smallest as
    /// a signed number; of two results with the same action the first one counts.
    pub fn judge(&self, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = vec![number, architecture, 0, 0];
        data.extend(arguments.iter().flat_map(|argument| [*argument as u32, (argument >> 32) as u32]));
        let results = self.0.iter().rev().map(|program| execute(program, &data));
        results.min_by_key(|result| (result & libc::SECCOMP_RET_ACTION_FULL) as i32).unwrap()
    }
}

/// Runs one program. Only the instructions are known that the filters use.
fn execute(program: &[Instruction], data: &[u32]) -> u32 {
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let Instruction { code, if_true, if_false, value } = &program[at];
        let branch = |holds: bool| if holds { *if_true } else { *if_false };
        at += 1 + match code {
            0x20 => {
                accumulator = data[*value as usize / 4];
                0
            }
            0x54 => {
                accumulator &= value;
                0
            }
            0x05 => *value as usize,
            0x15 => branch(accumulator == *value),
            0x35 => branch(accumulator >= *value),
            0x06 => return *value,
            other => panic!("instruction {other:#x}"),
        };
    }
}
