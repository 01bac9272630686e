// Package nearest finds what a mistyped word was probably meant to be.
package nearest

// Of returns the candidate that the fewest typing mistakes turn into word, or "" if
// none is near enough to be worth a suggestion.
func Of(word string, candidates []string) string {
	best, found := max(len(word)/3, 1)+1, ""
	for _, c := range candidates {
		if d := distance(word, c); d < best && d < len(c) {
			best, found = d, c
		}
	}
	return found
}

// distance counts insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
