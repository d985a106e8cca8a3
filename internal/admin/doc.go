// Package admin is the admin port of both binaries: whether a process is alive
// and ready, its metrics, its profiles, its state, and the nudges that other
// processes send it.
//
//	GET  /healthz        200 while the process can answer at all
//	GET  /readyz         200 if it does what it should; else 503 and the reasons
//	GET  /metrics        for Prometheus
//	GET  /state          what it is doing, as JSON
//	GET  /debug/pprof/   profiles, made when asked for
//	POST /nudge          a hint to look at something now (nudge.Handler)
//	GET  /page/          the page that shows the workload (package page)
//
// The port has no authentication and changes nothing, but for what the page does
// for one who has its token: it listens on loopback unless told otherwise, and then
// belongs into a network whose members may know how the workload does. No answer
// holds a credential or the command line, nor a task without the page's token.
// A web page in a browser on the same machine cannot read it: a request is only
// answered under an address of its own, so that a name which an attacker lets
// point here is refused (DNS rebinding), and no other origin is let in.
package admin
