use cachescope::{cache_scope, uncached};

async fn work() -> u32 {
    cache_scope!("loop", { other().await });
    cache_scope!("loop", < if other().await > 1 { return other().await } >);
    cache_scope!("loop", {
        let _later = async { other().await };
        println!("{}", other().await);
    });
    cache_scope!("loop", {
        macro_rules! wait {
            ($future:expr) => { $future.await };
        }
        wait!(other())
    });
    cache_scope!("loop", { apply!(other(), await) });
    uncached!(other().await)
}


async fn other() -> u32 {
    1
}

fn main() {
    let _ = work();
}
