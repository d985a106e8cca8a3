// Package source is what a distribution reads: lines, JSON lines and CSV of files, plain or packed,
// the names of files, or what a program makes. A source gives its records in a fixed order with a
// cursor behind each, so that another process can read on.
//
// # Reading
//
// Reading names what the distributor asks of a source besides to give records: whether its
// input can be fixed, tried, or said where a record stands. A source that lacks one of these is
// read without it.
package source
