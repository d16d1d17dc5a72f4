//! IP-2 to IP-5: the blocks of a range, and which of them are free.

use std::collections::BTreeSet;

use ipnet::IpNet;
use muster_lifecycle::cidr::{FreeBlocks, Grid, Span};
use proptest::prelude::*;

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn grid(range: &str, block_mask: u8) -> Grid {
    Grid { range: net(range), block_mask }
}

#[test]
fn ip_2_capacity_is_two_to_the_difference_of_the_masks() {
    let cases = [
        ("10.0.0.0/8", 24, 65_536),
        ("10.0.0.0/24", 24, 1),
        ("0.0.0.0/0", 32, 1 << 32),
        ("fd00::/48", 64, 65_536),
        ("fd00::/112", 128, 65_536),
    ];
    for (range, mask, blocks) in cases {
        assert_eq!(grid(range, mask).blocks(), blocks, "{range} in /{mask}");
    }
}

#[test]
fn ip_5_blocks_and_their_numbers_on_both_sides_of_bit_64() {
    let cases = [
        ("10.0.0.0/8", 24, 0, "10.0.0.0/24"),
        ("10.0.0.0/8", 24, 258, "10.1.2.0/24"),
        ("10.0.0.0/8", 24, 65_535, "10.255.255.0/24"),
        ("255.255.255.0/24", 32, 255, "255.255.255.255/32"),
        ("0.0.0.0/0", 32, 0xffff_fffe, "255.255.255.254/32"),
        ("fd00::/48", 64, 0x1234, "fd00:0:0:1234::/64"),
        ("fd00::/48", 60, 0xabc, "fd00:0:0:abc0::/60"),
        ("fd00::/56", 72, 0xabcd, "fd00:0:0:ab:cd00::/72"),
        ("fd00::/64", 80, 0xffff, "fd00::ffff:0:0:0/80"),
        ("fd00::1:0:0:0/80", 96, 0x8001, "fd00::1:8001:0:0/96"),
        ("fd00::/112", 128, 0xbeef, "fd00::beef/128"),
        ("ffff:ffff:ffff::/48", 64, 0xffff, "ffff:ffff:ffff:ffff::/64"),
    ];
    for (range, mask, number, block) in cases {
        let grid = grid(range, mask);
        assert_eq!(grid.block(number), Some(net(block)), "{range} in /{mask}");
        assert_eq!(grid.touched_by(&net(block)), Some((number, number + 1)), "and back");
        assert_eq!(grid.span(number, number + 1), Span::of(&net(block)), "{block}");
    }
}

#[test]
fn ip_4_a_range_occupies_every_block_it_overlaps() {
    let cases = [
        ("10.0.0.0/16", 24, "10.0.5.0/24", Some((5, 6))),
        ("10.0.0.0/16", 24, "10.0.5.128/25", Some((5, 6))),
        ("10.0.0.0/16", 24, "10.0.5.77/32", Some((5, 6))),
        ("10.0.0.0/16", 24, "10.0.4.0/22", Some((4, 8))),
        ("10.0.0.0/16", 24, "10.0.5.99/22", Some((4, 8))),
        ("10.0.0.0/16", 24, "10.0.0.0/8", Some((0, 256))),
        ("10.0.0.0/16", 24, "0.0.0.0/0", Some((0, 256))),
        ("10.0.0.0/16", 24, "10.1.0.0/16", None),
        ("10.0.0.0/16", 24, "::/0", None),
        ("fd00::/48", 64, "fd00:0:0:ff00::/56", Some((0xff00, 0x1_0000))),
    ];
    for (range, mask, other, expected) in cases {
        assert_eq!(grid(range, mask).touched_by(&net(other)), expected, "{other} on {range}");
    }
}

#[test]
fn spans_of_different_families_never_overlap() {
    assert!(!Span::of(&net("0.0.0.0/0")).overlaps(&Span::of(&net("::/0"))));
    assert!(Span::of(&net("::/0")).overlaps(&Span::of(&net("ffff::/16"))));
    assert_eq!(
        grid("ffff:ffff:ffff::/48", 64).span(0, 65_536),
        Span::of(&net("ffff:ffff:ffff::/48")),
        "to the very end"
    );
}

#[test]
fn ip_3_the_next_free_block_is_searched_from_the_cursor_and_then_from_the_start() {
    let mut free = FreeBlocks::all_below(8);
    assert_eq!(free.next_from(0), Some(0));
    free.occupy(0, 3);
    free.occupy(5, 6);
    let cases = [(0, 3), (2, 3), (3, 3), (4, 4), (5, 6), (6, 6), (7, 7), (8, 3), (99, 3)];
    for (cursor, expected) in cases {
        assert_eq!(free.next_from(cursor), Some(expected), "from {cursor}");
    }
    free.occupy(0, 8);
    assert_eq!((free.next_from(0), free.is_empty(), free.len()), (None, true, 0));
    assert_eq!(FreeBlocks::all_below(0).next_from(0), None);
}

const COUNT: u64 = 24;

#[derive(Debug, Clone)]
enum Step {
    Occupy(u64, u64),
    Release(u64, u64),
    Take(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let bounds = || (0..=COUNT, 0..=COUNT);
    prop_oneof![
        bounds().prop_map(|(start, end)| Step::Occupy(start, end)),
        bounds().prop_map(|(start, end)| Step::Release(start, end)),
        (0..COUNT + 3).prop_map(Step::Take),
    ]
}

proptest! {
    /// IP-3, IP-4: intervals are a set of numbers, written short. Occupying or releasing twice changes nothing.
    #[test]
    fn free_blocks_are_a_set_of_numbers(steps in proptest::collection::vec(any_step(), 0..40)) {
        let mut free = FreeBlocks::all_below(COUNT);
        let mut model: BTreeSet<u64> = (0..COUNT).collect();
        for step in steps {
            match step {
                Step::Occupy(start, end) => {
                    free.occupy(start, end);
                    model.retain(|number| !(start..end).contains(number));
                }
                Step::Release(start, end) => {
                    free.release(start, end);
                    model.extend(start..end);
                }
                Step::Take(cursor) => {
                    let naive = model.range(cursor..).next().or(model.first()).copied();
                    prop_assert_eq!(free.next_from(cursor), naive);
                    if let Some(taken) = naive {
                        free.occupy(taken, taken + 1);
                        model.remove(&taken);
                    }
                }
            }
            prop_assert_eq!(free.len(), model.len() as u64);
            prop_assert_eq!(free.is_empty(), model.is_empty());
            for number in 0..COUNT + 2 {
                prop_assert_eq!(free.is_free(number), model.contains(&number), "{}", number);
            }
            // There is one form for each set, whatever happened before: states that are equal must compare equal.
            let mut anew = FreeBlocks::default();
            model.iter().for_each(|number| anew.release(*number, *number + 1));
            prop_assert_eq!(&free, &anew);
        }
    }

    /// IP-5: each number names one block and the reverse, in both families and with any masks.
    #[test]
    fn every_block_has_one_number(base in any::<u128>(), is_v6 in any::<bool>(), prefix in 0u8..=128, bits in 0u8..=16, number in any::<u64>()) {
        let width = if is_v6 { 128 } else { 32 };
        let prefix = prefix % (width + 1);
        let block_mask = (prefix + bits).clamp(1, width);
        let address = if is_v6 { std::net::IpAddr::from(base.to_be_bytes()) } else { std::net::IpAddr::from((base as u32).to_be_bytes()) };
        let range = IpNet::new(address, prefix).expect("a prefix of this family").trunc();
        let grid = Grid { range, block_mask };
        let number = number % grid.blocks();
        let block = grid.block(number).expect("a block of the range");
        prop_assert_eq!(block, block.trunc(), "at its own start");
        prop_assert!(range.contains(&block));
        prop_assert_eq!(grid.touched_by(&block), Some((number, number + 1)));
        prop_assert_eq!(grid.span(number, number + 1), Span::of(&block));
        prop_assert_eq!(grid.touched_by(&range), Some((0, grid.blocks())));
    }
}
