//go:build race

package testworld

// RaceDetector tells a build with the race detector.
const RaceDetector = true
