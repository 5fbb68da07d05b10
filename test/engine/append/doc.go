// Package append tests what is written to the file before its transaction commits: Append
// and Spill, and Scan, which lets the pages that Spill replaced be used again.
package append
