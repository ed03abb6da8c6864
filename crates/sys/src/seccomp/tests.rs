//! The parts of a filter answer as the whole would.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Runs a program on a call, as the kernel does.
fn answer(program: &[sock_filter], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
    let mut data: Vec<u32> = vec![number, architecture, 0, 0];
    for argument in arguments {
        data.extend([argument as u32, (argument >> 32) as u32]);
    }
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            0x20 => accumulator = data[k as usize / 4],
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x45 => at += jump(accumulator & k != 0),
            0x06 => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}

#[test]
fn a_divided_filter_answers_as_a_whole_one() {
    const X86_64: u32 = 0xc000_003e;
    const AARCH64: u32 = 0xc000_00b7;
    const I386: u32 = 0x4000_0003;
    for kind in [Answer::NotImplemented, Answer::NotPermitted] {
        let chosen: Vec<&Entry> = entries().filter(|entry| entry.answer.errno() == kind.errno()).collect();
        let whole = build_in(&chosen, kind, 1).unwrap();
        for parts in [2, 3, PARTS, 1000] {
            let divided = build_in(&chosen, kind, parts).unwrap();
            let words = [0, 1, 2, 16, 0x5412, 0x1000_0000, 0x2000_0000, 0x7e02_0000, u64::MAX, 1 << 32];
            let numbers = (0..700).chain([0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, u32::MAX]);
            for (number, architecture) in
                numbers.flat_map(|number| [X86_64, AARCH64, I386].map(|architecture| (number, architecture)))
            {
                for first in words {
                    for second in words {
                        let arguments = [first, second, first, second, first, second];
                        assert_eq!(
                            answer(&divided, number, architecture, arguments),
                            answer(&whole, number, architecture, arguments),
                            "call {number} of {architecture:#x} with {arguments:x?} in {parts} parts"
                        );
                    }
                }
            }
        }
    }
}
