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
