//! Copies that are long enough for several threads. Their results equal the results of one thread.

use cachescope::ndarray::s;
use cachescope::{Array, Result, concat, stack};

/// Returns the results of operations on arrays of several megabytes. Together, they run every
/// implementation of a copy.
fn results(a: &Array<i32>, indices: &Array<i64>, rows: &Array<i64>) -> Result<Vec<Array<i32>>> {
    let turned = a.transpose()?;
    let mut by_row = Array::<i32>::ones([700, 900])?;
    by_row.scatter_add(&rows.unsqueeze(1)?, a, 0)?;
    let mut by_column = Array::<i32>::ones([5, 900])?;
    by_column.scatter_add(&(rows % 5).eval()?.unsqueeze(1)?, a, 0)?;
    let mut all = Array::<i32>::zeros(900)?;
    all.scatter_add(&indices.slice(s![0, ..])?, &a.slice(s![0, ..])?, 0)?;
    Ok(vec![
        a.take(rows, 0)?,
        a.take(&indices.slice(s![3, ..])?, 1)?,
        a.gather(indices, 1)?,
        turned.gather(&indices.transpose()?, 0)?,
        by_row,
        by_column,
        all,
        concat(&[a, &a.flip(1)?], 0)?,
        concat(&[a, &a.flip(0)?], 1)?,
        stack(&[a, a], 2)?,
        turned.flatten()?,
        turned.slice(s![..;2, 1..])?.flatten()?,
        a.flatten()?.slice(s![..;-3])?.repeat(3, 0)?,
        a.repeat(2, 0)?,
        a.pad(&[(3, 1), (0, 7)], -1)?,
        a.tril(5)?,
        turned.triu(-5)?,
        a.flatten()?.slice(s![..800])?.diag(3)?,
        rows.one_hot(700)?,
        a.sort(1)?,
        a.sort(0)?,
        a.reshape([90_000, 7])?.sort(1)?,
        a.argsort(1)?.cast().eval()?,
        turned.topk(300, 0)?.0,
    ])
}

#[test]
fn several_threads_copy_as_one_does() -> Result<()> {
    let value = |at: i64| (at * 7919 % 1_000_003 % 2000) as i32;
    let a = Array::from_vec((0..630_000).map(value).collect(), [700, 900])?;
    let indices = (0..630_000i64).map(|at| at * 31 % 1800 - 900).collect();
    let indices = Array::from_vec(indices, [700, 900])?;
    let rows = Array::from_vec((0..700i64).map(|at| at * 17 % 700).collect(), 700)?;
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    };
    let expected = pool(1).install(|| results(&a, &indices, &rows))?;
    for threads in [2, 5] {
        let shared = pool(threads).install(|| results(&a, &indices, &rows))?;
        for (number, (one, other)) in expected.iter().zip(&shared).enumerate() {
            assert!(one == other, "result {number} of {threads} threads");
        }
    }
    // Other tests check the results of one thread. This test only checks two samples.
    assert_eq!(
        expected[0].slice(s![1, ..])?.to_vec()?,
        a.slice(s![17, ..])?.to_vec()?
    );
    assert_eq!(expected[10].slice(s![701])?.item()?, value(901));
    Ok(())
}
