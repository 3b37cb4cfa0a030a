//! Sorts of short lists, compiled once for all types.
//!
//! The standard library's sorts are compiled for each type and key. Each instance has five to ten
//! kilobytes.

/// Sorts items by a number in ascending order. Equal items keep their order.
pub(crate) fn sort_ascending<T>(items: &mut [T], number: impl FnMut(&T) -> u64) {
    permute(items, order_of(items.iter().map(number).collect()));
}

/// Sorts items by a number in descending order. Equal items keep their order.
pub(crate) fn sort_descending<T>(items: &mut [T], mut number: impl FnMut(&T) -> u64) {
    sort_ascending(items, |item| !number(item));
}

/// Sorts a few axes or labels by a number in descending order, without an allocation.
pub(crate) fn sort_axes_descending<T: Copy>(axes: &mut [T], number: impl Fn(T) -> usize) {
    for end in 1..axes.len() {
        let mut at = end;
        while at > 0 && number(axes[at - 1]) < number(axes[at]) {
            axes.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Returns the indices of numbers in ascending order of the numbers, and then of the indices.
fn order_of(numbers: Vec<u64>) -> Vec<usize> {
    let mut pairs: Vec<(u64, usize)> = numbers.into_iter().zip(0..).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, index)| index).collect()
}

/// Moves the item `order[i]` to the position `i`, for each `i`.
fn permute<T>(items: &mut [T], order: Vec<usize>) {
    for place in 0..items.len() {
        // If `from` is below `place`, an earlier swap moved the item. `order` then leads, step by
        // step, to the item's current position.
        let mut from = order[place];
        while from < place {
            from = order[from];
        }
        items.swap(place, from);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_sorted_as_by_the_standard_library(
            items in prop::collection::vec((0u64..6, any::<u8>()), 0..40)
        ) {
            let numbers = |item: &(u64, u8)| item.0;
            let (mut sorted, mut expected) = (items.clone(), items.clone());
            sort_ascending(&mut sorted, numbers);
            expected.sort_by_key(numbers);
            prop_assert_eq!(&sorted, &expected);
            expected = items.clone();
            expected.sort_by_key(|item| Reverse(item.0));
            sorted = items.clone();
            sort_descending(&mut sorted, numbers);
            prop_assert_eq!(&sorted, &expected);
            sorted = items;
            sort_axes_descending(&mut sorted, |item| item.0 as usize);
            prop_assert_eq!(&sorted, &expected);
        }
    }
}
