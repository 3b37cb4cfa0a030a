//! The command-line arguments of a test executable.

/// The parsed arguments of a test executable: libtest's filters, and other options.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    filters: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    pub(super) wants_list: bool,
    pub(super) wants_help: bool,
    /// The options that are passed on to libtest.
    pub(super) others: Vec<String>,
}

/// The libtest options whose value may be a separate argument.
const WITH_VALUE: [&str; 6] = [
    "--test-threads",
    "--color",
    "--format",
    "--logfile",
    "--shuffle-seed",
    "-Z",
];

impl Arguments {
    pub(super) fn new(arguments: impl IntoIterator<Item = String>) -> Self {
        let mut found = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => found.is_exact = true,
                "--skip" => found.skipped.extend(arguments.next()),
                "--list" => found.wants_list = true,
                "--help" | "-h" => found.wants_help = true,
                option if WITH_VALUE.contains(&option) => {
                    found.others.push(argument);
                    found.others.extend(arguments.next());
                }
                option if option.starts_with("--skip=") => {
                    found.skipped.push(option["--skip=".len()..].to_owned());
                }
                option if option.starts_with('-') => found.others.push(argument),
                _ => found.filters.push(argument),
            }
        }
        found
    }

    /// Returns whether libtest would select the test with the given name.
    pub(super) fn select(&self, test: &str) -> bool {
        let matches = |text: &String| match self.is_exact {
            true => test == text,
            false => test.contains(text.as_str()),
        };
        let is_wanted = self.filters.is_empty() || self.filters.iter().any(matches);
        is_wanted && !self.skipped.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn arguments(text: &str) -> Arguments {
        Arguments::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn filters_are_parts_of_names() {
        let asked = arguments("pools:: reuse --skip slow --test-threads 2 --nocapture");
        assert!(asked.select("pools::kinds::one"));
        assert!(asked.select("scopes::reuse::two"));
        assert!(!asked.select("scopes::names::three"));
        assert!(!asked.select("pools::slow::four"));
        assert_eq!(asked.others, ["--test-threads", "2", "--nocapture"]);
        assert!(!asked.wants_list && !asked.wants_help);
    }

    #[test]
    fn exact_filters_are_whole_names() {
        let asked = arguments("--exact pools::one --skip=pools::two");
        assert!(asked.select("pools::one"));
        assert!(!asked.select("pools::one::more"));
        let all = arguments("--exact --skip=pools::two");
        assert!(all.select("pools::one"));
        assert!(!all.select("pools::two"));
    }

    #[test]
    fn lists_and_help_are_distinguished() {
        assert!(arguments("--list --format terse").wants_list);
        assert!(arguments("-h").wants_help);
        assert!(arguments("").select("anything"));
    }
}
