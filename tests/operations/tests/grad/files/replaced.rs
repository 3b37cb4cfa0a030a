//! Replaced files: their permissions, and the links to them.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

#[test]
fn permissions_stay() -> Result<()> {
    for ending in ENDINGS {
        let scratch = Scratch::new(&format!("permissions-{ending}"));
        let path = scratch.path(&format!("model.{ending}"));
        files::save(&Array::<f32>::zeros(3)?, &path)?;
        for permitted in [0o600, 0o640, 0o444, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(permitted)).unwrap();
            let own = Array::full(3, permitted as f32)?;
            files::save(&own, &path)?;
            assert_eq!(mode(&path), permitted, "{permitted:o}");
            assert_eq!(files::load(&Array::zeros(3)?, &path)?, own);
            assert_eq!(scratch.files(), 1);
        }
    }
    Ok(())
}

/// While a private file is written, other users cannot read the temporary file.
#[test]
fn a_draft_of_a_private_file_is_private() -> Result<()> {
    struct Spying(PathBuf, Array<f32>);

    impl Parameters for Spying {
        fn map_arrays<M: MapArrays>(&self, map: &mut M) -> Result<Self> {
            for file in fs::read_dir(&self.0).unwrap() {
                assert_eq!(mode(&file.unwrap().path()), 0o600);
            }
            Ok(Self(self.0.clone(), map.map(&self.1)?))
        }

        fn zip_arrays<Z: ZipArrays>(&mut self, other: &Self, zip: &mut Z) -> Result<()> {
            zip.zip(&mut self.1, &other.1)
        }
    }

    for ending in ENDINGS {
        let scratch = Scratch::new(&format!("private-{ending}"));
        let path = scratch.holding(&format!("model.{ending}"), b"secret");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        files::save(&Spying(scratch.0.clone(), Array::zeros(3)?), &path)?;
        assert_eq!((mode(&path), scratch.files()), (0o600, 1));
    }
    Ok(())
}

#[test]
fn links_stay_and_their_targets_are_replaced() -> Result<()> {
    for ending in ENDINGS {
        let scratch = Scratch::new(&format!("links-{ending}"));
        let [folder, other] = ["data", "links"].map(|name| scratch.path(name));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&other).unwrap();
        let target = folder.join(format!("model.{ending}"));
        let [first, second] = ["first", "second"].map(|own| other.join(format!("{own}.{ending}")));
        // The first link is relative to its folder, and the second link is a link to the first.
        symlink(format!("../data/model.{ending}"), &first).unwrap();
        symlink(&first, &second).unwrap();
        // At first, the link's target does not exist.
        for value in 0..3 {
            let own = Array::full(2, value as f32)?;
            let path = if value == 1 { &first } else { &second };
            files::save(&own, path)?;
            assert!(is_link(&first) && is_link(&second) && !is_link(&target));
            assert_eq!(files::load(&Array::zeros(2)?, &target)?, own);
            fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(mode(&target), 0o600);
        let count = |path: &Path| fs::read_dir(path).unwrap().count();
        assert_eq!((count(&folder), count(&other)), (1, 2));

        let [one, two] = ["one", "two"].map(|own| other.join(format!("{own}.{ending}")));
        symlink(&one, &two).unwrap();
        symlink(&two, &one).unwrap();
        let saved = files::save(&Array::<f32>::zeros(1)?, &one);
        fails(saved, ErrorKind::Io, &["one", "links"]);
    }
    Ok(())
}
