// Package claim stands before a handler and lets work on a key begin once in an interval (origins
// B2 to B4).
package claim
