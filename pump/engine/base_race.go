//go:build race

package engine

// RaceDetector tells a build with the race detector.
const RaceDetector = true
