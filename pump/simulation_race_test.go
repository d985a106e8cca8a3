//go:build race

package pump

const raceDetector = true
