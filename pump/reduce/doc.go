// Package reduce counts by segment: a [Reducer] keeps a state for each segment that every task
// changes exactly once, whatever crashes. [CountBy] is the one that counts a field.
package reduce
