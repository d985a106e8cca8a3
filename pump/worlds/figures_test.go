package worlds

import "time"

// These are the halves' own figures, which no caller can name. A world that meets another figure
// fails.
const (
	neverBegun = "no later leader learned of it, so its own was probably lost before it began; no beat says that anything of it was sent"
	mostLease  = 5 * time.Minute
	putOffMost = 5 * time.Minute
)
