//! The command line as its user meets it: a process with arguments, files, two streams and an exit
//! code.
