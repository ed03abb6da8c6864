//! Where objects are: loose ones, and packs with their index (version 2).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use belljar_sys::Errno;
use belljar_sys::beneath::Directory;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use super::index::HashLength;
use super::object::{Commit, Naming, Object, ObjectError, ObjectId, ObjectKind, tagged};

/// No commit and no tree is larger.
const LARGEST_OBJECT: u64 = 32 << 20;
/// Larger than what any blob that is a difference to another has.
const LARGEST_DELTA: u64 = 128 << 20;
/// Bytes that are unpacked for one look at a repository.
const MOST_READ: u64 = 1 << 30;
/// Bytes that are unpacked to check a pack, or all loose objects of a set of changes.
pub(crate) const MOST_PACKED: u64 = 4 << 30;
/// Differences on top of each other; git makes 50.
const DEEPEST_DELTA: usize = 512;
/// Packs of one place.
const MOST_PACKS: usize = 2000;
/// Packs that are held open at once, each with its index. A process may have 1024 descriptors.
const MOST_OPEN: usize = 100;
const BUFFER: usize = 32 << 10;

/// The objects of a repository: the first place that has one is believed, if it is what its name says.
pub(crate) struct Objects {
    stores: Vec<Store>,
    pub(super) hash: HashLength,
    /// There are places of objects that are not looked at.
    pub(super) gaps: bool,
    left: Cell<u64>,
}

struct Store {
    directory: Directory,
    packs: OnceCell<Vec<Pack>>,
    open: Rc<OpenPacks>,
}

impl Objects {
    /// Objects in these directories, each called `objects`.
    pub(super) fn new(directories: Vec<Directory>, hash: HashLength) -> Self {
        let open = Rc::new(OpenPacks::default());
        let store = |directory| Store { directory, packs: OnceCell::new(), open: Rc::clone(&open) };
        let stores = directories.into_iter().map(store).collect();
        Objects { stores, hash, gaps: false, left: Cell::new(MOST_READ) }
    }

    /// Reads one that is not larger than commits and trees are.
    pub(super) fn read(&self, id: &ObjectId) -> Result<Object, ObjectError> {
        let mut found = Err(ObjectError::Missing);
        for store in &self.stores {
            match self.read_in(store, id) {
                Ok(object) if object.is(id, self.hash) => return Ok(object),
                Ok(_) => return Err(ObjectError::Damaged),
                Err(ObjectError::Missing) => {}
                // Another place may have a whole one.
                Err(error) => found = Err(error),
            }
        }
        found
    }

    fn read_in(&self, store: &Store, id: &ObjectId) -> Result<Object, ObjectError> {
        for pack in store.packs(self.hash) {
            if let Some(offset) = pack.find(id)? {
                return pack
                    .object(offset, LARGEST_OBJECT, &self.left, None, &|base| self.read_base(store, base));
            }
        }
        store.loose(id, LARGEST_OBJECT, &self.left)
    }

    /// Reads the base of a delta that names its base. git writes such packs for the wire only, so depth does not matter.
    fn read_base(&self, store: &Store, id: &ObjectId) -> Result<Object, ObjectError> {
        store.loose(id, LARGEST_OBJECT, &self.left)
    }

    /// Whether an object that is not found is nowhere: all packs can be read, and none is fetched when it is needed.
    pub(super) fn are_all_known(&self) -> bool {
        !self.gaps && self.stores.iter().all(|store| store.is_whole(self.hash))
    }

    /// Whether there is one of this name, whatever it holds.
    pub(super) fn has(&self, id: &ObjectId) -> bool {
        let hex = id.hex();
        let packed = |store: &Store| {
            store.packs(self.hash).iter().any(|pack| pack.find(id).is_ok_and(|found| found.is_some()))
        };
        let loose = |store: &Store| {
            let above = store.directory.passage(Path::new(&hex[..2]));
            above.is_ok_and(|above| above.file(OsStr::new(&hex[2..])).is_ok())
        };
        self.stores.iter().any(|store| loose(store) || packed(store))
    }

    pub(super) fn commit(&self, id: &ObjectId) -> Result<Commit, ObjectError> {
        let object = self.read(id)?;
        match object.kind {
            ObjectKind::Commit => Commit::parse(&object.content).ok_or(ObjectError::Damaged),
            ObjectKind::Tree | ObjectKind::Blob | ObjectKind::Tag => Err(ObjectError::Unsupported),
        }
    }

    /// The commit that a ref leads to, through tags; `None` where it leads to something else.
    pub(super) fn peeled(&self, id: &ObjectId) -> Result<Option<ObjectId>, ObjectError> {
        let mut id = *id;
        for _ in 0..16 {
            let object = self.read(&id)?;
            match object.kind {
                ObjectKind::Commit => return Ok(Some(id)),
                ObjectKind::Tag => id = tagged(&object.content).ok_or(ObjectError::Damaged)?,
                ObjectKind::Tree | ObjectKind::Blob => return Ok(None),
            }
        }
        Err(ObjectError::Damaged)
    }

    pub(super) fn tree(&self, id: &ObjectId) -> Result<Vec<u8>, ObjectError> {
        let object = self.read(id)?;
        (object.kind == ObjectKind::Tree).then_some(object.content).ok_or(ObjectError::Damaged)
    }
}

impl Store {
    fn is_whole(&self, hash: HashLength) -> bool {
        let Ok(directory) = self.directory.directory(Path::new("pack")) else { return true };
        let (mut indexes, mut lazy) = (0, false);
        let read = directory.entries(|name, _kind| {
            indexes += usize::from(name.as_bytes().ends_with(b".idx"));
            lazy |= name.as_bytes().ends_with(b".promisor");
        });
        read.is_ok() && !lazy && self.packs(hash).len() == indexes
    }

    fn packs(&self, hash: HashLength) -> &[Pack] {
        self.packs.get_or_init(|| {
            let Ok(directory) = self.directory.directory(Path::new("pack")) else { return Vec::new() };
            let mut names = Vec::new();
            // A directory that cannot be read has no packs for us; what is missing is said where it is missed.
            directory.entries(|name, _kind| names.push(name.to_owned())).ok();
            names.retain(|name| name.as_bytes().ends_with(b".idx"));
            names.sort();
            names.truncate(MOST_PACKS);
            let directory = Rc::new(directory);
            let named = |name: &OsString| Named {
                directory: Rc::clone(&directory),
                index: name.clone(),
                open: Rc::clone(&self.open),
            };
            names.iter().filter_map(|name| Pack::named(named(name), hash).ok()).collect()
        })
    }

    fn loose(&self, id: &ObjectId, limit: u64, left: &Cell<u64>) -> Result<Object, ObjectError> {
        let hex = id.hex();
        let file =
            self.directory.passage(Path::new(&hex[..2])).and_then(|above| above.file(OsStr::new(&hex[2..])));
        let file = match file {
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(ObjectError::Missing),
            answer => answer.map_err(|_cause| ObjectError::Unreadable)?,
        };
        let mut bytes = Vec::new();
        inflate_from(&file, 0, left, &mut |part| {
            bytes.extend_from_slice(part);
            if bytes.len() as u64 > limit + 64 { Err(ObjectError::TooLarge) } else { Ok(()) }
        })?;
        let (kind, size, start) = loose_head(&bytes).ok_or(ObjectError::Damaged)?;
        let content = bytes.split_off(start);
        if content.len() as u64 != size {
            return Err(ObjectError::Damaged);
        }
        Ok(Object { kind, content })
    }
}

/// `kind size NUL`: what kind, how many bytes, and where they begin.
fn loose_head(bytes: &[u8]) -> Option<(ObjectKind, u64, usize)> {
    let end = bytes.iter().take(32).position(|byte| *byte == 0)?;
    let mut parts = bytes[..end].split(|byte| *byte == b' ');
    let kind = ObjectKind::of_name(parts.next()?)?;
    let size = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    parts.next().is_none().then_some((kind, size, end + 1))
}

/// Whether a loose object is what its name says, as far as there are bytes left to be unpacked.
pub(super) fn verify_loose(
    file: &File,
    id: &ObjectId,
    hash: HashLength,
    left: &Cell<u64>,
) -> Result<(), ObjectError> {
    let mut head = Vec::new();
    let mut naming: Option<(Naming, u64)> = None;
    inflate_from(file, 0, left, &mut |part| {
        if let Some((naming, left)) = &mut naming {
            *left = left.checked_sub(part.len() as u64).ok_or(ObjectError::Damaged)?;
            naming.update(part);
            return Ok(());
        }
        head.extend_from_slice(part);
        if let Some((kind, size, start)) = loose_head(&head) {
            let mut fresh = Naming::new(hash, kind, size);
            fresh.update(&head[start..]);
            let left = size.checked_sub((head.len() - start) as u64).ok_or(ObjectError::Damaged)?;
            naming = Some((fresh, left));
        } else if head.len() > 64 {
            return Err(ObjectError::Damaged);
        }
        Ok(())
    })?;
    let named = naming.filter(|(_, left)| *left == 0).and_then(|(naming, _)| naming.finish());
    if named.as_ref() == Some(id) { Ok(()) } else { Err(ObjectError::Damaged) }
}

/// Unpacks a stream that begins at an offset of a file; `take` gets each part.
fn inflate_from(
    file: &File,
    offset: u64,
    left: &Cell<u64>,
    take: &mut dyn FnMut(&[u8]) -> Result<(), ObjectError>,
) -> Result<(), ObjectError> {
    let mut state = InflateState::new_boxed(DataFormat::Zlib);
    let (mut input, mut output) = (vec![0; BUFFER], vec![0; BUFFER]);
    let (mut at, mut offset) = (0..0, offset);
    loop {
        if at.is_empty() {
            let length = file.read_at(&mut input, offset).map_err(|_cause| ObjectError::Unreadable)?;
            offset += length as u64;
            at = 0..length;
        }
        let done = inflate(&mut state, &input[at.clone()], &mut output, MZFlush::None);
        at.start += done.bytes_consumed;
        let rest = left.get().checked_sub(done.bytes_written as u64).ok_or(ObjectError::TooMuch)?;
        left.set(rest);
        take(&output[..done.bytes_written])?;
        match done.status {
            Ok(MZStatus::StreamEnd) => return Ok(()),
            Ok(_) if done.bytes_consumed + done.bytes_written > 0 => {}
            Ok(_) | Err(_) => return Err(ObjectError::Damaged),
        }
    }
}

/// The files of a pack.
struct PackFiles {
    index: File,
    pack: File,
}

/// A pack that is opened when it is needed.
struct Named {
    directory: Rc<Directory>,
    index: OsString,
    open: Rc<OpenPacks>,
}

impl Named {
    fn open(&self) -> Result<PackFiles, ObjectError> {
        let unreadable = |_cause: Errno| ObjectError::Unreadable;
        let stem = self.index.as_bytes().strip_suffix(b".idx").ok_or(ObjectError::Unsupported)?;
        let pack = [stem, b".pack"].concat();
        let index = self.directory.file(&self.index).map_err(unreadable)?;
        let pack = self.directory.file(OsStr::from_bytes(&pack)).map_err(unreadable)?;
        Ok(PackFiles { index, pack })
    }
}

/// The packs that were used last, the latest at the end.
#[derive(Default)]
struct OpenPacks(RefCell<Vec<OpenPack>>);

struct OpenPack {
    directory: Rc<Directory>,
    index: OsString,
    files: Rc<PackFiles>,
}

impl OpenPacks {
    fn files(&self, named: &Named) -> Result<Rc<PackFiles>, ObjectError> {
        let mut open = self.0.borrow_mut();
        let is_it =
            |known: &OpenPack| Rc::ptr_eq(&known.directory, &named.directory) && known.index == named.index;
        let files = match open.iter().rposition(is_it) {
            Some(at) => open.remove(at).files,
            None => {
                if open.len() >= MOST_OPEN {
                    open.remove(0);
                }
                Rc::new(named.open()?)
            }
        };
        let (directory, index) = (Rc::clone(&named.directory), named.index.clone());
        open.push(OpenPack { directory, index, files: Rc::clone(&files) });
        Ok(files)
    }
}

enum Source {
    Open(Rc<PackFiles>),
    Named(Named),
}

/// A pack and its index.
pub(super) struct Pack {
    source: Source,
    pack_size: u64,
    fanout: Vec<u32>,
    hash: usize,
}

impl Pack {
    fn named(named: Named, hash: HashLength) -> Result<Self, ObjectError> {
        let PackFiles { index, pack } = named.open()?;
        Ok(Pack { source: Source::Named(named), ..Self::of(index, pack, hash)? })
    }

    pub(super) fn of(index: File, pack: File, hash: HashLength) -> Result<Self, ObjectError> {
        let pack_size = pack.metadata().map_err(|_cause| ObjectError::Unreadable)?.len();
        let mut head = vec![0; 8 + 1024];
        index.read_exact_at(&mut head, 0).map_err(|_cause| ObjectError::Damaged)?;
        if !head.starts_with(b"\xfftOc\0\0\0\x02") {
            return Err(ObjectError::Unsupported);
        }
        let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let fanout: Vec<u32> = head[8..].chunks(4).map(number).collect();
        if fanout.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(ObjectError::Damaged);
        }
        let source = Source::Open(Rc::new(PackFiles { index, pack }));
        Ok(Pack { source, pack_size, fanout, hash: hash.bytes() })
    }

    fn files(&self) -> Result<Rc<PackFiles>, ObjectError> {
        match &self.source {
            Source::Open(files) => Ok(Rc::clone(files)),
            Source::Named(named) => named.open.files(named),
        }
    }

    fn count(&self) -> u64 {
        self.fanout.last().copied().unwrap_or(0).into()
    }

    fn index_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ObjectError> {
        let mut bytes = vec![0; length];
        self.files()?.index.read_exact_at(&mut bytes, offset).map_err(|_cause| ObjectError::Damaged)?;
        Ok(bytes)
    }

    fn name(&self, at: u64) -> Result<ObjectId, ObjectError> {
        let bytes = self.index_at(8 + 1024 + at * self.hash as u64, self.hash)?;
        ObjectId::new(&bytes).ok_or(ObjectError::Damaged)
    }

    fn offset(&self, at: u64) -> Result<u64, ObjectError> {
        let (count, hash) = (self.count(), self.hash as u64);
        let short = 8 + 1024 + count * (hash + 4);
        let number = |bytes: Vec<u8>| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let value = number(self.index_at(short + at * 4, 4)?);
        if value & 0x8000_0000 == 0 {
            return Ok(value);
        }
        let long = short + count * 4 + (value & 0x7fff_ffff) * 8;
        Ok(number(self.index_at(long, 8)?))
    }

    fn find(&self, id: &ObjectId) -> Result<Option<u64>, ObjectError> {
        let first = usize::from(id.as_bytes()[0]);
        let mut low = if first == 0 { 0 } else { u64::from(self.fanout[first - 1]) };
        let mut high = u64::from(self.fanout[first]);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle)?.cmp(id) {
                std::cmp::Ordering::Equal => return self.offset(middle).map(Some),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// The kind, the size and where the stream begins; for a difference, what it is to.
    fn head(&self, offset: u64) -> Result<PackedHead, ObjectError> {
        let mut bytes = [0; 64];
        let room = self.pack_size.checked_sub(offset).ok_or(ObjectError::Damaged)?.min(64);
        let bytes = &mut bytes[..room as usize];
        self.files()?.pack.read_exact_at(bytes, offset).map_err(|_cause| ObjectError::Damaged)?;
        let mut rest = bytes.iter().copied().enumerate();
        let mut next = || rest.next().ok_or(ObjectError::Damaged);
        let (_, first) = next()?;
        let (kind, mut size) = (first >> 4 & 7, u64::from(first & 15));
        let (mut shift, mut more, mut used) = (4, first & 0x80 != 0, 1);
        while more {
            let (at, byte) = next()?;
            size |= u64::from(byte & 0x7f)
                .checked_shl(shift)
                .filter(|_| shift < 57)
                .ok_or(ObjectError::Damaged)?;
            (shift, more, used) = (shift + 7, byte & 0x80 != 0, at + 1);
        }
        let to = match kind {
            1 => To::Whole(ObjectKind::Commit),
            2 => To::Whole(ObjectKind::Tree),
            3 => To::Whole(ObjectKind::Blob),
            4 => To::Whole(ObjectKind::Tag),
            6 => {
                let (at, byte) = next()?;
                let (mut back, mut more) = (u64::from(byte & 0x7f), byte & 0x80 != 0);
                used = at + 1;
                while more {
                    let (at, byte) = next()?;
                    back = back
                        .checked_add(1)
                        .and_then(|back| back.checked_mul(128))
                        .ok_or(ObjectError::Damaged)?
                        | u64::from(byte & 0x7f);
                    (more, used) = (byte & 0x80 != 0, at + 1);
                }
                // The base always comes before the delta, so there is no cycle.
                To::Offset(offset.checked_sub(back).filter(|_| back > 0).ok_or(ObjectError::Damaged)?)
            }
            7 => {
                let id =
                    bytes.get(used..used + self.hash).and_then(ObjectId::new).ok_or(ObjectError::Damaged)?;
                used += self.hash;
                To::Named(id)
            }
            _ => return Err(ObjectError::Damaged),
        };
        Ok(PackedHead { to, size, stream: offset + used as u64 })
    }

    fn stream(&self, head: &PackedHead, limit: u64, left: &Cell<u64>) -> Result<Vec<u8>, ObjectError> {
        if head.size > limit {
            return Err(ObjectError::TooLarge);
        }
        let mut out = Vec::new();
        inflate_from(&self.files()?.pack, head.stream, left, &mut |part| {
            out.extend_from_slice(part);
            if out.len() as u64 > head.size { Err(ObjectError::Damaged) } else { Ok(()) }
        })?;
        if out.len() as u64 == head.size { Ok(out) } else { Err(ObjectError::Damaged) }
    }

    fn object(
        &self,
        offset: u64,
        limit: u64,
        left: &Cell<u64>,
        cache: Option<&RefCell<Cache>>,
        named: &dyn Fn(&ObjectId) -> Result<Object, ObjectError>,
    ) -> Result<Object, ObjectError> {
        let (mut deltas, mut at, mut held) = (Vec::new(), offset, 0);
        let mut object = loop {
            if let Some(known) = cache.and_then(|cache| cache.borrow().get(at)) {
                break known;
            }
            let head = self.head(at)?;
            let content = self.stream(&head, limit, left)?;
            match head.to {
                To::Whole(kind) => break Object { kind, content },
                To::Offset(base) => {
                    deltas.push((at, content));
                    at = base;
                }
                To::Named(id) => {
                    deltas.push((at, content));
                    match self.find(&id)? {
                        Some(base) if base != at => at = base,
                        Some(_) => return Err(ObjectError::Damaged),
                        None => break named(&id)?,
                    }
                }
            }
            held += deltas.last().map_or(0, |(_, content): &(u64, Vec<u8>)| content.len() as u64);
            if deltas.len() > DEEPEST_DELTA || held > 2 * limit {
                return Err(ObjectError::TooMuch);
            }
        };
        for (at, delta) in deltas.into_iter().rev() {
            object.content = patched(&object.content, &delta, limit).ok_or(ObjectError::Damaged)?;
            let rest = left.get().checked_sub(object.content.len() as u64).ok_or(ObjectError::TooMuch)?;
            left.set(rest);
            if let Some(cache) = cache {
                cache.borrow_mut().put(at, &object);
            }
        }
        Ok(object)
    }

    /// Whether every object of the pack is what the index calls it. Then the index cannot give another content to the name
    /// of an object that the repository has already.
    pub(super) fn verify(&self, hash: HashLength) -> Result<(), ObjectError> {
        let left = Cell::new(MOST_PACKED);
        let cache = RefCell::new(Cache::default());
        let mut before: Option<ObjectId> = None;
        for at in 0..self.count() {
            let id = self.name(at)?;
            let first = usize::from(id.as_bytes()[0]);
            let placed =
                at < u64::from(self.fanout[first]) && (first == 0 || at >= u64::from(self.fanout[first - 1]));
            if !placed || before.is_some_and(|before| before >= id) {
                return Err(ObjectError::Damaged);
            }
            before = Some(id);
            let missing = |_id: &ObjectId| Err(ObjectError::Missing);
            let object = self.object(self.offset(at)?, LARGEST_DELTA, &left, Some(&cache), &missing)?;
            if !object.is(&id, hash) {
                return Err(ObjectError::Damaged);
            }
        }
        Ok(())
    }
}

struct PackedHead {
    to: To,
    size: u64,
    stream: u64,
}

enum To {
    Whole(ObjectKind),
    Offset(u64),
    Named(ObjectId),
}

/// Objects that others are differences to.
#[derive(Default)]
struct Cache {
    objects: HashMap<u64, Object>,
    bytes: usize,
}

impl Cache {
    const LARGEST: usize = 64 << 20;

    fn get(&self, offset: u64) -> Option<Object> {
        self.objects.get(&offset).cloned()
    }

    fn put(&mut self, offset: u64, object: &Object) {
        if self.bytes + object.content.len() > Self::LARGEST {
            self.objects.clear();
            self.bytes = 0;
        }
        if object.content.len() < Self::LARGEST / 4 {
            self.bytes += object.content.len();
            self.objects.insert(offset, object.clone());
        }
    }
}

/// Applies a difference.
pub(super) fn patched(base: &[u8], delta: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut rest = delta.iter().copied();
    let mut size = || {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = rest.next()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 57)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    };
    let (from, to) = (size()?, size()?);
    if from != base.len() as u64 || to > limit {
        return None;
    }
    let mut out = Vec::new();
    while let Some(word) = rest.next() {
        if word & 0x80 == 0 {
            for _ in 0..word {
                out.push(rest.next()?);
            }
            // Nothing to insert is reserved.
            (word != 0).then_some(())?;
        } else {
            let mut number = |bits: std::ops::Range<u8>| {
                let mut value = 0_usize;
                for (place, bit) in bits.enumerate() {
                    if word & (1 << bit) != 0 {
                        value |= usize::from(rest.next()?) << (8 * place);
                    }
                }
                Some(value)
            };
            let (start, length) = (number(0..4)?, number(4..7)?);
            let length = if length == 0 { 0x10000 } else { length };
            out.extend_from_slice(base.get(start..start.checked_add(length)?)?);
        }
        if out.len() as u64 > to {
            return None;
        }
    }
    (out.len() as u64 == to).then_some(out)
}
