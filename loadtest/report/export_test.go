package report

// What the tests of the page share with those of this package: package drawing imports this one.
var Sample = sample

const Hostile = hostile
