//! Names of the variants of enums, and the error for a name that no variant has.

use crate::error::{Error, ErrorCode};
pub(crate) use crate::text::display_name;

pub(crate) trait Named: Sized + 'static {
    /// The variants with their names, in the order of their declaration.
    const NAMES: &[(Self, &str)];
}

/// Returns the error that `text` is none of the names of `E`.
pub(crate) fn unknown<E: Named>(text: &str) -> Error {
    let names: Vec<&str> = E::NAMES.iter().map(|(_, name)| *name).collect();
    let names = names.join(", ");
    let text = format!("unknown name \"{text}\", expected one of {names}");
    Error::new(ErrorCode::Setting, text)
}

/// Gives the variants of an enum names: implements [`Named`], `Display` and `FromStr`.
macro_rules! names {
    ($named:ty { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $crate::naming::Named for $named {
            const NAMES: &[(Self, &str)] = &[$((Self::$variant, $name)),+];
        }

        impl std::fmt::Display for $named {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(match self {
                    $(Self::$variant => $name),+
                })
            }
        }

        impl std::str::FromStr for $named {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::naming::unknown::<Self>(text)),
                }
            }
        }
    };
}

pub(crate) use names;

#[cfg(test)]
mod tests {
    use super::display_name;
    use crate::error::ErrorKind;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Sample {
        First,
        TheOther,
    }

    names!(Sample { First => "first", TheOther => "the-other" });

    #[test]
    fn every_variant_parses_its_own_text() {
        for variant in [Sample::First, Sample::TheOther] {
            assert_eq!(variant.to_string().parse::<Sample>().unwrap(), variant);
        }
        assert_eq!(Sample::TheOther.to_string(), "the-other");
        assert_eq!(
            format!("{:>7}|{:<7}|", Sample::First, Sample::First),
            "  first|first  |"
        );
    }

    #[test]
    fn any_other_text_is_refused_with_the_names() {
        for text in ["", "First", "FIRST", " first", "the_other", "third"] {
            let error = text.parse::<Sample>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let expected =
                format!("unknown name \"{text}\", expected one of first, the-other [CS0503]");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn names_are_shown_in_one_line() {
        for plain in ["", "step", "it's \"so\"", "ünïcode 漢字 🦀"] {
            assert_eq!(display_name(plain), plain);
        }
        assert_eq!(display_name("a\nb\0\u{202e}"), "a\\nb\\0\\u{202e}");
        assert_ne!(display_name("a\nb"), display_name("a\\nb"));
        let sixty = "x".repeat(60);
        assert_eq!(display_name(&sixty), sixty);
        let long = display_name(&format!("begin {sixty} end"));
        assert_eq!(long, format!("begin {}…{} end", &sixty[..33], &sixty[..16]));
        assert_eq!(long.chars().count(), 60);
        assert_eq!(display_name(&"\n".repeat(1 << 20)).chars().count(), 60);
        // The name exceeds the limit only after it is escaped.
        assert_eq!(display_name(&"\0".repeat(31)).chars().count(), 60);
    }
}
