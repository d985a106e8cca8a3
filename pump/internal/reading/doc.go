// Package reading names what the distributor asks of a source besides to give records: whether its
// input can be fixed, tried, or said where a record stands. A source that lacks one of these is
// read without it.
package reading
