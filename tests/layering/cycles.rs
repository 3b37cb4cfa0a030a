//! Checks that no folder is part of a cycle of imports, at any level of any crate. The files of a
//! folder may import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

pub(super) const CRATES: [&str; 10] = [
    "crates/capi/src",
    "crates/cli/src",
    "crates/fft/src",
    "crates/kernels/src",
    "crates/linalg/src",
    "crates/memory/src",
    "crates/reports/src",
    "crates/tools/src",
    "macros/src",
    "src",
];

type ModulePath = Vec<String>;

/// The imports of a crate: its modules, and the paths that each module names.
struct Crate {
    named: BTreeMap<ModulePath, Vec<ModulePath>>,
    /// The path of each imported or re-exported item, by module and name.
    imports: BTreeMap<(ModulePath, String), ModulePath>,
}

impl Crate {
    fn read(folder: &str) -> Self {
        let mut own = Self {
            named: BTreeMap::new(),
            imports: BTreeMap::new(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder);
        own.read_folder(&root, &Vec::new());
        own
    }

    fn read_folder(&mut self, folder: &Path, module: &ModulePath) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut own = module.clone();
            if !["lib", "main", "mod"].contains(&name.as_str()) {
                own.push(name);
            }
            if path.is_dir() {
                self.read_folder(&path, &own);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = code_without_tests(&fs::read_to_string(&path).unwrap());
                self.read_module(own, &code);
            }
        }
    }

    fn read_module(&mut self, module: ModulePath, code: &str) {
        let mut named = Vec::new();
        for path in imported_paths(code) {
            if let Some(path) = resolve(&path, &module) {
                let name = path.last().unwrap().clone();
                self.imports.insert((module.clone(), name), path.clone());
                named.push(path);
            }
        }
        named.extend(inline_paths(code).filter_map(|path| resolve(&path, &module)));
        self.named.entry(module).or_default().extend(named);
    }

    /// Returns the module that defines the item `path`.
    fn definition(&self, path: &ModulePath) -> ModulePath {
        let mut path = path.clone();
        for _ in 0..8 {
            let length = (0..=path.len()).rev();
            let mut length = length.filter(|&length| self.named.contains_key(&path[..length]));
            let length = length.next().unwrap_or(0);
            let module = path[..length].to_vec();
            let Some(name) = path.get(length) else {
                return module;
            };
            match self.imports.get(&(module.clone(), name.clone())) {
                Some(target) if *target != path => {
                    path = [target.as_slice(), &path[length + 1..]].concat();
                }
                _ => return module,
            }
        }
        path
    }

    /// Returns the imports between the modules of each folder, by the path of the folder.
    fn levels(&self) -> BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> {
        let mut levels: BTreeMap<_, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, named) in &self.named {
            if module.iter().any(|name| name == "tests" || name == "model") {
                continue;
            }
            for path in named {
                let target = self.definition(path);
                let same = module
                    .iter()
                    .zip(&target)
                    .take_while(|(own, other)| own == other);
                let depth = same.count();
                if let (Some(own), Some(other)) = (module.get(depth), target.get(depth)) {
                    let level = levels.entry(module[..depth].to_vec()).or_default();
                    level.entry(own.clone()).or_default().insert(other.clone());
                }
            }
        }
        levels
    }

    fn is_folder(&self, module: &ModulePath) -> bool {
        let inside = |own: &ModulePath| own.len() > module.len() && own.starts_with(module);
        self.named.keys().any(inside)
    }
}

/// Returns the code without comments and without the inline test module at the end of the file.
fn code_without_tests(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let code: Vec<&str> = lines.collect();
    let tests = code.windows(2).position(|pair| {
        pair[0].starts_with("#[cfg(")
            && pair[0].contains("test")
            && pair[1].starts_with("mod ")
            && pair[1].ends_with('{')
    });
    code[..tests.unwrap_or(code.len())].join("\n")
}

/// Returns the paths of all `use` statements.
fn imported_paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let Some(start) = statement.rfind("use ") else {
            continue;
        };
        let before = statement[..start].chars().next_back();
        if before.is_none_or(char::is_whitespace) {
            expand(&statement[start + 4..], &[], &mut paths);
        }
    }
    paths
}

/// Appends the paths of the import `tree`, each prefixed by `before`, to `paths`.
fn expand(tree: &str, before: &[String], paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let names = |text: &str| {
        let names = text.split("::").map(|name| name.trim().to_owned());
        let names = names.filter(|name| !name.is_empty() && name != "self" || text == "self");
        names.collect::<Vec<_>>()
    };
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let keeps_self = |name: &String| name == "self";
        let mut path = [before, &names(path)].concat();
        if path.len() > 1 && path.last().is_some_and(keeps_self) {
            path.pop();
        }
        paths.extend((!path.is_empty()).then_some(path));
        return;
    };
    let before = [before, &names(&tree[..open])].concat();
    let close = tree.rfind('}').filter(|&close| close > open);
    let inner = &tree[open + 1..close.unwrap_or(tree.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    expand(&inner[start..at], &before, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the paths in the code that begin with `crate`, `super` or `self`.
fn inline_paths(code: &str) -> impl Iterator<Item = Vec<String>> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Vec<_>>());
    paths.filter(|path| path.len() > 1 && ["crate", "super", "self"].contains(&path[0].as_str()))
}

/// Returns the path from the root of the crate, if `path` begins with `crate`, `super` or `self`.
fn resolve(path: &[String], module: &ModulePath) -> Option<ModulePath> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let resolved = match path[0].as_str() {
        "crate" => path[1..].to_vec(),
        "self" => [module.as_slice(), &path[1..]].concat(),
        "super" => {
            let kept = module.len().saturating_sub(ups);
            [&module[..kept], &path[ups..]].concat()
        }
        _ => return None,
    };
    (!resolved.is_empty()).then_some(resolved)
}

/// Returns a cycle of imports from `from` back to `from`, if there is one.
fn cycle(from: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in imports.get(way.last().unwrap()).into_iter().flatten() {
            if next == from {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}

#[test]
fn no_folder_is_in_a_cycle_of_imports() {
    let mut cycles = Vec::new();
    for folder in CRATES {
        let own = Crate::read(folder);
        assert!(!own.named.is_empty(), "{folder} was not found");
        for (level, imports) in own.levels() {
            for module in imports.keys() {
                let path = [level.as_slice(), std::slice::from_ref(module)].concat();
                let name = format!("{folder}: {}", path.join("::"));
                if !own.is_folder(&path) {
                    continue;
                }
                if let Some(way) = cycle(module, &imports) {
                    cycles.push(format!("{name} by {}", way.join(" → ")));
                }
            }
        }
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn the_reader_of_imports_reads_them() {
    let code = "pub use super::a::{self, B, c::{D as E}};\nuse std::fmt;\nlet x = crate::f::g();";
    let paths =
        |paths: Vec<Vec<String>>| paths.iter().map(|path| path.join("::")).collect::<Vec<_>>();
    let imported = paths(imported_paths(code));
    assert_eq!(
        imported,
        ["super::a", "super::a::B", "super::a::c::D", "std::fmt"]
    );
    let module: ModulePath = ["m", "n"].map(str::to_owned).to_vec();
    let resolved = imported_paths(code)
        .iter()
        .filter_map(|path| resolve(path, &module))
        .collect();
    assert_eq!(paths(resolved), ["m::a", "m::a::B", "m::a::c::D"]);
    let inline = paths(inline_paths(code).collect());
    assert!(inline.contains(&"crate::f::g".to_owned()));
}
