package queues

// Even shares out a limit by demands, as budgets are shared. Each share has a small floor. A share
// exceeds its demand only if all demands are met. The rest is given out too.
func Even(limit float64, demands []float64) []float64 {
	claims := make([]claim, len(demands))
	for i, d := range demands {
		claims[i] = claim{floor: limit * FloorPart / float64(len(demands)), demand: d, weight: 1}
	}
	return divide(limit, claims)
}
