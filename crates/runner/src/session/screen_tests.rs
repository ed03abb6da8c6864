use super::*;

fn after(text: &str) -> String {
    let mut screen = Screen::default();
    // In the smallest pieces that a pipe may deliver.
    text.as_bytes().chunks(1).for_each(|piece| screen.see(piece));
    screen.reset()
}

#[test]
fn plain_lines_need_nothing() {
    assert_eq!(after(""), "");
    assert_eq!(after("one\r\ntwo é 日本\n"), "");
    assert_eq!(after("half a line"), "\r\n");
}

#[test]
fn colours_need_no_other_line() {
    let reset = after("\u{1b}[1;31mred\u{1b}[K\n");
    assert_eq!(reset, RESET);
    assert_eq!(after("\u{1b}[31mred\n\u{1b}[0m"), RESET);
    assert!(after("\u{1b}[31mred").ends_with("\r\n"));
}

#[test]
fn a_program_that_left_the_alternate_screen_left_the_cursor_in_its_place() {
    assert_eq!(after("\u{1b}[?1049hx\u{1b}[?1049l"), RESET);
    assert_eq!(after("\u{1b}[?1049h\u{1b}[H\u{1b}[2;5r\u{1b}[2Jx\u{1b}[?1049l\n"), RESET);
    for still in [
        "\u{1b}[?1049h\u{1b}[2J\n",
        "\u{1b}[?1;1049h\n",
        "\u{1b}[?1049h\u{1b}7\u{1b}[?1049l\n",
        "\u{1b}[?47h\u{1b}[?47l\n",
    ] {
        assert!(after(still).ends_with(&format!("{TO_THE_END}\r\n")), "{still:?}");
    }
}

#[test]
fn a_cursor_that_was_moved_goes_to_the_end() {
    for moved in [
        "\u{1b}[H\n",
        "\u{1b}[5A\n",
        "\u{1b}[1;3r\n",
        "\u{1b}[?6h\n",
        "\u{1b}M\n",
        "\u{1b}8\n",
        "\u{1b}c\n",
        "\u{1b}#8\n",
        "\u{9b}H\n",
        "\u{1b}[999999999999999999999999999999999999999999999999999999999999H\n",
    ] {
        assert!(after(moved).contains(TO_THE_END), "{moved:?}");
    }
}

#[test]
fn a_cleared_screen_has_nothing_below_the_cursor() {
    assert_eq!(after("\u{1b}[H\u{1b}[2J\u{1b}[3Jcleared\n"), RESET);
    assert_eq!(after("\u{1b}[3A\u{1b}[Jredrawn\n"), RESET);
    assert!(after("\u{1b}[H\u{1b}[1J\n").contains(TO_THE_END));
    assert!(after("\u{1b}[2J\u{1b}[H\n").contains(TO_THE_END));
}

#[test]
fn what_was_used_is_undone() {
    assert!(after("\u{1b}]11;#000000\u{7}\n").contains(PALETTE));
    assert!(after("\u{1b}]10;red\u{1b}\\\n").contains(PALETTE));
    assert!(!after("\u{1b}]11;?\u{7}\n").contains(PALETTE));
    assert!(!after("\u{1b}]0;a title\u{7}\n").contains(PALETTE));
    assert!(after("\u{1b}[>1u\n").contains(KITTY_KEYS));
    assert!(after("\u{1b}[>4;2m\n").contains(XTERM_KEYS));
    assert!(after("\u{1b}[5 q\n").contains(SHAPE));
    assert!(after("\u{e}\n").starts_with(RESET));
    // Later text must not become part of a link that was left open.
    for open in ["\u{1b}]8;;https://host/\u{7}a link\n", "\u{1b}]8;id=1;https://host/\u{1b}\\a link\n"] {
        assert!(after(open).contains("\u{1b}]8;;\u{1b}\\"), "{open:?}");
    }
    // Otherwise the report would be part of the string.
    assert!(after("\u{1b}]0;never ended\n").starts_with("\u{1b}\\"));
    assert!(after("\u{1b}P\n").starts_with("\u{1b}\\"));
}

#[test]
fn what_a_command_had_turned_on_is_turned_on_again() {
    let restored = |text: &str| {
        let mut screen = Screen::default();
        screen.see(text.as_bytes());
        screen.restore()
    };
    assert_eq!(restored("plain\n\u{1b}[31mred"), "");
    assert_eq!(
        restored("\u{1b}[?1049h\u{1b}[?25l\u{1b}[?2004h\u{1b}[?1004h\u{1b}[?1004l\u{1b}="),
        "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?2004h\u{1b}="
    );
    assert_eq!(
        restored("\u{1b}[>1u\u{1b}[>5u\u{1b}[<u\u{1b}[>4;2m\u{1b}[5 q"),
        "\u{1b}[>1u\u{1b}[>4;2m\u{1b}[5 q"
    );
    assert_eq!(restored("\u{1b}[?1000h\u{1b}[?1049h\u{1b}[?1049l\u{1b}[!p"), "");
    assert_eq!(restored("\u{1b}[?25l\u{1b}[?25h\u{1b}[?9999h"), "");
}

#[test]
fn it_is_said_once() {
    let mut screen = Screen::default();
    screen.see(b"\x1b[31mx");
    assert!(!screen.reset().is_empty());
    assert_eq!(screen.reset(), "");
}

#[test]
fn fuzz_screen() {
    let time = std::time::Duration::from_millis(300);
    bolero::check!().with_test_time(time).for_each(|bytes: &[u8]| {
        let mut screen = Screen::default();
        screen.see(bytes);
        assert!(screen.sequence.len() <= KEPT);
        assert!(screen.restore().len() < 2048);
        assert!(screen.reset().len() < 512);
    });
}
