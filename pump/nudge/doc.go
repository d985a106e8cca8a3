// Package nudge takes hints that other processes send over HTTP: [Handler] answers them on
// [Path] of the server at Config.Admin. A program without a server of its own carries hints with
// Config.Nudge and calls Nudged of its process.
package nudge
