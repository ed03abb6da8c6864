//! The numbers of the calls that a guard answers, on this processor.

macro_rules! numbers {
    ($($name:ident = $number:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($number), "`.")]
            pub const $name: i64 = libc::$number;
        )*
    };
}

numbers! {
    OPENAT = SYS_openat,
    MKDIRAT = SYS_mkdirat,
    MKNODAT = SYS_mknodat,
    SYMLINKAT = SYS_symlinkat,
    LINKAT = SYS_linkat,
    RENAMEAT = SYS_renameat,
    RENAMEAT2 = SYS_renameat2,
    TRUNCATE = SYS_truncate,
}

#[cfg(target_arch = "x86_64")]
numbers! {
    OPEN = SYS_open,
    CREAT = SYS_creat,
    MKDIR = SYS_mkdir,
    MKNOD = SYS_mknod,
    SYMLINK = SYS_symlink,
    LINK = SYS_link,
    RENAME = SYS_rename,
}
