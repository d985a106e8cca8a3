// Package jsonline checks lines of JSON and finds fields in them.
//
// A line is checked and its fields are found in one pass, without decoding it into maps: on lines
// of 130 bytes that is several times faster than encoding/json, which would otherwise cost the
// distributor more than the compression does, and the processor more than all else when it writes
// results into a file. Valid JSON is exactly as encoding/json says; the fuzz
// target compares the two.
package jsonline
