//! Enums whose variants have one fixed name each, in the environment and on the command line.

/// Declares an enum with `FromStr` and `Display` over the given names.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $( $(#[$variant_meta])* $variant ),+ }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $( Self::$variant => $text ),+ })
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;

            /// Reads the lower-case name.
            ///
            /// # Errors
            ///
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text; the
            /// message lists the names.
            fn from_str(text: &str) -> $crate::Result<Self> {
                match text {
                    $( $text => Ok(Self::$variant), )+
                    other => Err($crate::Error::new(
                        $crate::ErrorKind::InvalidArgument,
                        format!("unknown name \"{other}\": one of {}", [$($text),+].join(", ")),
                    )),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::ErrorKind;

    named_enum! {
        /// Two names, one of them hyphenated.
        #[expect(unreachable_pub, reason = "the macro declares public enums")]
        pub enum Sample {
            #[default]
            First = "first",
            TheOther = "the-other",
        }
    }

    #[test]
    fn every_variant_reads_back_what_it_prints() {
        for variant in [Sample::First, Sample::TheOther] {
            assert_eq!(variant.to_string().parse::<Sample>().unwrap(), variant);
        }
        assert_eq!(Sample::TheOther.to_string(), "the-other");
        assert_eq!(Sample::default(), Sample::First);
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
            let expected = format!("unknown name \"{text}\": one of first, the-other");
            assert_eq!(error.to_string(), expected);
        }
    }
}
