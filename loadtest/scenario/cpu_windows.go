package scenario

// processorTime is not known here.
func processorTime() *float64 { return nil }
