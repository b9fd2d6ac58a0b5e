// Thalweg in a program in Go, by cgo:
//
//	go run . /tmp/weather
package main

/*
#cgo pkg-config: thalweg
#include <stdlib.h>
#include <thalweg.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// DB is an open folder. Goroutines may share it.
type DB struct{ handle *C.thalweg_db_t }

// str lends a text to C for the time of a call; the pinner is unpinned after that.
func str(text string, pins *runtime.Pinner) C.thalweg_str_t {
	if text == "" {
		return C.thalweg_str_t{}
	}
	data := unsafe.StringData(text)
	pins.Pin(data)
	return C.thalweg_str_t{data: (*C.char)(unsafe.Pointer(data)), len: C.size_t(len(text))}
}

func failure(code C.thalweg_code_t, failed *C.thalweg_error_t) error {
	if code == C.THALWEG_OK {
		return nil
	}
	message := C.thalweg_error_message(failed)
	text := C.GoStringN(message.data, C.int(message.len))
	C.thalweg_error_free(failed)
	return errors.New(text)
}

// Open opens a folder, or makes one.
func Open(folder string) (*DB, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var db DB
	var failed *C.thalweg_error_t
	code := C.thalweg_open(str(folder, &pins), C.thalweg_str_t{}, &db.handle, &failed)
	if err := failure(code, failed); err != nil {
		return nil, err
	}
	return &db, nil
}

// Close flushes, closes and frees.
func (db *DB) Close() error {
	var failed *C.thalweg_error_t
	err := failure(C.thalweg_close(db.handle, &failed), failed)
	C.thalweg_db_free(db.handle)
	db.handle = nil
	return err
}

// WriteLines writes line protocol with timestamps in nanoseconds.
func (db *DB) WriteLines(lines string) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	var failed *C.thalweg_error_t
	code := C.thalweg_write_lines(db.handle, C.thalweg_str_t{}, str(lines, &pins), C.thalweg_str_t{}, nil, &failed)
	return failure(code, failed)
}

// Range gives the samples of one series.
func (db *DB) Range(selector string, startNs, endNs int64) ([]int64, []float64, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var failed *C.thalweg_error_t
	var count C.size_t
	name := str(selector, &pins)
	start, end := C.int64_t(startNs), C.int64_t(endNs)
	code := C.thalweg_range_f64(db.handle, C.thalweg_str_t{}, name, start, end, nil, nil, 0, &count, &failed)
	if err := failure(code, failed); err != nil || count == 0 {
		return nil, nil, err
	}
	times, values := make([]int64, count), make([]float64, count)
	code = C.thalweg_range_f64(db.handle, C.thalweg_str_t{}, name, start, end, (*C.int64_t)(unsafe.Pointer(&times[0])),
		(*C.double)(unsafe.Pointer(&values[0])), count, &count, &failed)
	if err := failure(code, failed); err != nil {
		return nil, nil, err
	}
	return times[:min(int(count), len(times))], values[:min(int(count), len(values))], nil
}

func run(folder string) error {
	db, err := Open(folder)
	if err != nil {
		return err
	}
	const begin, minute = int64(1700000000000000000), int64(60_000_000_000)
	for row := int64(0); row < 10; row++ {
		line := fmt.Sprintf("weather,station=hill celsius=%.1f %d", 4+float64(row)/10, begin+row*minute)
		if err := db.WriteLines(line); err != nil {
			return err
		}
	}
	times, values, err := db.Range(`weather_celsius{station="hill"}`, begin, begin+4*minute)
	if err != nil {
		return err
	}
	fmt.Printf("%d samples, the last one %.1f\n", len(times), values[len(values)-1])
	if _, _, err := db.Range("nowhere", begin, begin); err != nil {
		fmt.Println("refused:", err)
	}
	return db.Close()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: example FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
