// K3 in Go: produce 1 ms, consume 0.6 ms, a channel of 16, each goroutine on a thread of its own (what goroutines
// do inside one thread no kernel sees). produce: min(s, 0.4); consume: 0. Options as prodcons.rs.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

var visits uint64

//go:noinline
func produce(steps uint64) uint64 { x := steps; for i := uint64(0); i < steps; i++ { x = x*6364136223846793005 + 11 }; return x }

//go:noinline
func consume(steps uint64) uint64 { x := steps; for i := uint64(0); i < steps; i++ { x = x*6364136223846793005 + 13 }; return x }

//go:noinline
func progress() { visits++ }

func measure() uint64 {
	const steps = 4000000
	best := time.Hour
	for i := 0; i < 8; i++ {
		start := time.Now()
		produce(steps)
		best = min(best, time.Since(start))
	}
	return steps * 1000000 / uint64(best.Nanoseconds())
}

func main() {
	seconds, perMs := 2.0, uint64(0)
	scale := map[string]float64{"produce": 1, "consume": 1}
	for i := 1; i+1 < len(os.Args); i += 2 {
		name, value, _ := strings.Cut(os.Args[i+1], "=")
		switch os.Args[i] {
		case "--seconds":
			seconds, _ = strconv.ParseFloat(name, 64)
		case "--per-ms":
			perMs, _ = strconv.ParseUint(name, 10, 64)
		case "--scale":
			scale[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	if perMs == 0 {
		perMs = measure()
	}
	end := time.Now().Add(time.Duration(seconds * 1e9))
	queue := make(chan uint64, 16)
	go func() {
		runtime.LockOSThread()
		for time.Now().Before(end) {
			queue <- produce(uint64(float64(perMs) * scale["produce"]))
		}
		close(queue)
	}()
	runtime.LockOSThread()
	var first, last time.Time
	for range queue {
		consume(uint64(0.6 * float64(perMs) * scale["consume"]))
		progress()
		last = time.Now()
		if visits == 1 {
			first = last
		}
	}
	period := float64(last.Sub(first).Nanoseconds()) / float64(max(visits, 2)-1)
	fmt.Printf("visits %d\nperiod_ns %.0f\nrate %.3f\nper_ms %d\n", visits, period, 1e9/period, perMs)
}
