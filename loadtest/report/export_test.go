package report

// What the tests of the page share with those of this package.
var (
	Sample = sample
	Plots  = plots
)

const Hostile = hostile
