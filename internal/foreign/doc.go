// Package foreign reads messages that other programs put: what their task is, and of which key.
package foreign
