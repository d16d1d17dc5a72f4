//! Huge pages that are reserved.

use std::collections::BTreeMap;
use std::fs;

use super::file::Root;

const DIRECTORY: &str = "/sys/kernel/mm/hugepages";
/// Architectures have a handful of sizes.
const SIZES_MAX: usize = 16;

/// Reserved bytes by page size, in bytes. A kernel without huge pages has no sizes.
pub(crate) fn by_size(root: &Root) -> BTreeMap<u64, u64> {
    let Ok(entries) = fs::read_dir(root.path(DIRECTORY)) else { return BTreeMap::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| reserved(root, &name)).take(SIZES_MAX).collect()
}

fn reserved(root: &Root, name: &str) -> Option<(u64, u64)> {
    let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let size = kibibytes.checked_mul(1024).filter(|size| *size > 0)?;
    let pages = root.number(&format!("{DIRECTORY}/{name}/nr_hugepages")).ok()?;
    Some((size, pages.checked_mul(size)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_size_is_reported_even_without_reserved_pages() {
        let tree = tempfile::tempdir().unwrap();
        for (name, pages) in [
            ("hugepages-2048kB", "3\n"),
            ("hugepages-1048576kB", "0\n"),
            ("hugepages-0kB", "9\n"),
            ("hugepages-64kB", "many\n"),
            ("hugepages-4kB", "18446744073709551615\n"),
            ("something", "1\n"),
        ] {
            let directory = tree.path().join("sys/kernel/mm/hugepages").join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("nr_hugepages"), pages).unwrap();
        }
        let sizes = by_size(&Root::new(tree.path()));
        assert_eq!(sizes, BTreeMap::from([(2 << 20, 6 << 20), (1 << 30, 0)]));
        assert!(by_size(&Root::new("/nowhere")).is_empty());
    }
}
