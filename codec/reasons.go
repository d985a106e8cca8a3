package codec

// The reasons of a [Cause], as metrics and pump.Hooks have them, too. RetryPolicy is pump's.
const (
	ReasonBadLine    = "bad-line"    // of a source, by distributor.BadLineQuarantine
	ReasonRejected   = "rejected"    // the handler said so
	ReasonAttempts   = "attempts"    // RetryPolicy.MaxAttempts
	ReasonAge        = "age"         // RetryPolicy.MaxAge
	ReasonNotNow     = "not-now"     // RetryPolicy.MaxBusy
	ReasonTruncated  = "truncated"   // the envelope's end is missing
	ReasonCorrupt    = "corrupt"     // its checksums do not agree
	ReasonBomb       = "bomb"        // it unpacks to more than the limits allow
	ReasonUnknownRun = "unknown-run" // its run has no row
	// its run has no row any more, and the message is older than the retention
	ReasonRunExpired    = "run-expired"
	ReasonRunEnded      = "run-ended"      // its run has ended before it was done
	ReasonOtherWorkload = "other-workload" // it belongs to another workload
	ReasonStateFull     = "state-full"     // its reducer's state had no room for it, for an hour
	ReasonNoBody        = "no-body"        // the blob with its body is gone, or has other bytes
	// ReasonEndsProcess: its processes died or vanished while they had it alone,
	// RetryPolicy.MaxAttempts times; or its child died, and half of its attempts were made.
	ReasonEndsProcess = "ends-process"
)
