//! k-means: finds the centres of clouds of points (Lloyd 1982). Each step moves each centre to the
//! mean of the points that are nearest to it.

use cachescope::Generator;
use cachescope::prelude::*;
use shared::savings;

const CLUSTERS: usize = 5;
const POINTS: usize = 20_000;
const DIMENSIONS: usize = 3;
const ROUNDS: usize = 50;

/// Returns the squared distance of every row of `points` to every row of `centres`.
fn distances(points: &Array<f32>, centres: &Array<f32>) -> Result<Array<f32>> {
    let products = points.matmul(&centres.transpose()?)?;
    let lengths = points.square().sum_axis(1)?.unsqueeze(1)?;
    (products * -2.0 + lengths + centres.square().sum_axis(1)?).eval()
}

/// Returns the initial centres: the first point, and then repeatedly the point that is farthest
/// from all centres so far.
fn first_centres(points: &Array<f32>) -> Result<Array<f32>> {
    let mut centres = points.take(&Array::zeros(1)?, 0)?;
    while centres.shape()[0] < CLUSTERS {
        let farthest = distances(points, &centres)?.min_axis(1)?.argmax()?;
        centres = concat(&[&centres, &points.take(&farthest.reshape(1)?, 0)?], 0)?;
    }
    Ok(centres)
}

fn main() -> Result<()> {
    let mut generator = Generator::new(7);
    let truth = (Array::<f32>::rand_with(&mut generator, [CLUSTERS, DIMENSIONS])? * 8.0).eval()?;
    let cloud = (Array::rand_with(&mut generator, POINTS)? * CLUSTERS as f32)
        .cast::<i64>()
        .eval()?;
    let noise = Array::<f32>::randn_with(&mut generator, [POINTS, DIMENSIONS])?;
    let points = (truth.take(&cloud, 0)? + noise).eval()?;

    let mut centres = first_centres(&points)?;
    savings::watch("round");
    let mut scatter = f32::INFINITY;
    for round in 1..=ROUNDS {
        let now = cache_scope!("round", {
            let distances = distances(&points, &centres)?;
            let nearest = distances.argmin_axis(1)?;
            let is_member = nearest
                .unsqueeze(1)?
                .eq(Array::arange(0, CLUSTERS as i64, 1)?);
            let is_member = is_member.cast::<f32>().eval()?;
            let sums = is_member.transpose()?.matmul(&points)?;
            let counts = is_member.sum_axis(0)?.unsqueeze(1)?;
            centres.assign(sums / counts.maximum(1.0))?; // in place: no array leaves the scope
            distances.min_axis(1)?.mean()?.item()?
        });
        if now >= scatter {
            println!("settled in round {round}: mean squared distance {now:.4}");
            break;
        }
        scatter = now;
    }
    savings::print("round");

    // Every true centre must be among the found centres, in any order.
    let miss = distances(&truth, &centres)?.min_axis(1)?.max()?.item()?;
    println!(
        "\nthe worst centre is {:.4} from a true one",
        miss.max(0.0).sqrt()
    );
    assert!(miss < 0.01, "a cloud has no centre of its own");
    Ok(())
}
