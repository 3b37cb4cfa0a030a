//! The order of accesses from several streams to the memory of one array.

use cachescope::{Array, Result};

use crate::streams::{assert_all, device, large, written};

#[test]
fn nothing_runs_before_it_is_waited_for() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut a = Array::full(4, 1)?;
    let stream = device.new_stream()?;
    // If the host executed the addition at once, it would have to wait for the other stream.
    let sum = {
        let _guard = stream.enter();
        (&a + 1).eval()?
    };
    a.fill(5)?;
    assert_eq!((a.to_vec()?, sum.to_vec()?), (vec![5; 4], vec![2; 4]));
    Ok(())
}

#[test]
fn reading_waits_for_the_stream_that_wrote() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let written = {
        let _guard = stream.enter();
        Array::from_slice(&[1_i32, 2, 3], 3)?
    };
    let doubled = (&written * 2).eval()?;
    let sum = written.sum()?;
    let dot = written.matmul(&written)?;
    assert_eq!(doubled.to_vec()?, [2, 4, 6]);
    assert_eq!((sum.item()?, dot.item()?), (6, 14));
    Ok(())
}

#[test]
fn the_host_waits_for_the_stream_that_wrote() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    let guard = stream.enter();
    let written = Array::from_slice(&[1, 2, 3], 3)?;
    drop(guard);
    assert_eq!(
        written,
        Array::from_slice(&[1, 2, 3], 3)?.to_device(&device)?
    );
    assert_eq!(written.to_string(), "[1 2 3]");
    Ok(())
}

#[test]
fn writing_waits_for_the_streams_that_read() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut a = written(1)?;
    let streams = [device.new_stream()?, device.new_stream()?];
    let mut sums = Vec::new();
    for stream in &streams {
        let _guard = stream.enter();
        sums.push((&a + 1).eval()?);
    }
    a.fill(100)?;
    assert_all(&a, 100); // If `fill` did not wait, it would run before the sums.
    for sum in &sums {
        assert_all(sum, 2);
    }
    Ok(())
}

#[test]
fn writing_waits_for_the_stream_that_wrote() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut a = written(0)?;
    {
        let _guard = stream.enter();
        a.fill(1)?;
    }
    a.fill(2)?;
    assert_all(&a, 2);
    stream.synchronize()?; // If the second write did not wait, the first would run only now.
    assert_all(&a, 2);
    Ok(())
}

#[test]
fn a_writer_that_read_waits_for_what_the_writer_before_read_since() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut a = written(1)?;
    {
        let _guard = stream.enter();
        assert_all(&(&a + 1).eval()?, 2);
    }
    let read_again = (&a * 3).eval()?;
    {
        let _guard = stream.enter();
        a.fill(7)?;
        assert_all(&a, 7);
    }
    assert_all(&read_again, 3);
    Ok(())
}

#[test]
fn work_is_ordered_through_a_third_stream() -> Result<()> {
    let device = device();
    let (first, second) = (device.new_stream()?, device.new_stream()?);
    let a = {
        let _guard = first.enter();
        large(3)?
    };
    let b = {
        let _guard = second.enter();
        (&a * 2).eval()?
    };
    drop(a);
    let c = (&b + 1).eval()?;
    drop(b);
    assert_all(&c, 7);
    Ok(())
}

#[test]
fn an_array_outlives_its_stream_whose_number_is_used_again() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    let guard = stream.enter();
    let mut a = Array::full(3, 1)?;
    drop((guard, stream));
    let another = device.new_stream()?;
    let b = {
        let _guard = another.enter();
        (&a + 1).eval()?
    };
    drop(another);
    let _guard = device.enter();
    a.fill(9)?;
    let c = (&b + &a).eval()?;
    assert_eq!(c.to_vec()?, [11; 3]);
    drop((a, b, c));
    assert_eq!(device.memory_stats().live_blocks, 0);
    Ok(())
}

#[test]
fn streams_of_two_threads_meet_in_one_array() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let a = written(1)?;
    let sums: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let (a, stream) = (&a, device.new_stream().unwrap());
                scope.spawn(move || {
                    let _guard = stream.enter();
                    (a + number).eval().unwrap()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    drop(a);
    for (number, sum) in (0..).zip(&sums) {
        assert_all(sum, number + 1);
    }
    Ok(())
}
