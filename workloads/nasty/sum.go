// 31: a Go program: goroutines whose stacks move, in functions that are to be probed. Exits of Go
// functions are never seen (its stacks are copied); an entry that grows the stack is begun anew and counts
// twice.
package main

import (
	"fmt"
	"os"
	"sync"
)

var calls [4]uint64

//go:noinline
func work(x, depth int, calls *uint64) int {
	*calls++
	var room [128]int
	room[x&127] = x
	if depth == 0 {
		return room[x&127] + 1
	}
	return work(x+1, depth-1, calls) + room[x&127]
}

func main() {
	var sums [4]int
	var all sync.WaitGroup
	for i := range sums {
		all.Add(1)
		go func() {
			defer all.Done()
			for k := 0; k < 300; k++ {
				sums[i] += work(k, k%60, &calls[i])
			}
		}()
	}
	all.Wait()
	fmt.Println(sums)
	if path := os.Getenv("WHITHER_TRUTH"); path != "" {
		text := fmt.Sprintf("main.work %d exact\n", calls[0]+calls[1]+calls[2]+calls[3])
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			panic(err)
		}
	}
}
