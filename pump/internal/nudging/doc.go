// Package nudging sends hints between processes (P8.2). A hint is never waited for and may be lost:
// what it tells stands in a queue or a row as well.
package nudging
