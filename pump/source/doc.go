// Package source is what a distribution reads: lines, JSON lines and CSV of files, plain or packed,
// the names of files, or what a program makes. A source gives its records in a fixed order with a
// cursor behind each, so that another process can read on.
//
// # Reading
//
// Besides giving records, a source may do what the interfaces in reading.go name: fix its input, be
// tried, or say where a record stands. The distributor reads a source without those that it lacks.
package source
