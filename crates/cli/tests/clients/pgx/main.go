// The usual flows of pgx against a server. Takes the port.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(is bool, what string, found any) {
	if !is {
		check(fmt.Errorf("%s: %v", what, found))
	}
}

func count(ctx context.Context, db *pgx.Conn, host string) (n int64) {
	check(db.QueryRow(ctx, "SELECT count(*) FROM gx WHERE host = $1", host).Scan(&n))
	return n
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "postgres://tester@127.0.0.1:"+os.Args[1]+"/default?sslmode=disable")
	check(err)
	_, err = db.Exec(ctx, "CREATE TABLE gx (time TIMESTAMPTZ NOT NULL, host TAG, level DOUBLE PRECISION, n BIGINT, ok BOOLEAN)")
	check(err)
	at := time.Date(2024, 7, 10, 12, 0, 0, 123_000_000, time.UTC)
	tag, err := db.Exec(ctx, "INSERT INTO gx (time, host, level, n, ok) VALUES ($1, $2, $3, $4, $5)", at, "a", 1.5, int64(7), true)
	check(err)
	expect(tag.RowsAffected() == 1, "rows", tag)
	var found time.Time
	var level float64
	var n int64
	var ok bool
	check(db.QueryRow(ctx, "SELECT time, level, n, ok FROM gx WHERE host = ANY($1)", []string{"a", "b"}).Scan(&found, &level, &n, &ok))
	expect(found.Equal(at) && level == 1.5 && n == 7 && ok, "row", []any{found, level, n, ok})

	// The difference of two dates is an int4.
	var days int32
	check(db.QueryRow(ctx, "SELECT DATE '2024-03-01' - DATE '2024-02-01'").Scan(&days))
	expect(days == 29, "days", days)

	// A batch is one transaction.
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO gx (time, host, n) VALUES ($1, $2, $3)", at, "batch", int64(1))
	batch.Queue("INSERT INTO gx (time, host, n) VALUES ($1, $2, $3)", at.Add(time.Second), "batch", int64(2))
	check(db.SendBatch(ctx, batch).Close())
	expect(count(ctx, db, "batch") == 2, "rows of a batch", count(ctx, db, "batch"))
	batch = &pgx.Batch{}
	batch.Queue("INSERT INTO gx (time, host, n) VALUES ($1, $2, $3)", at, "failed", int64(1))
	batch.Queue("SELECT 1 / $1::bigint", int64(0))
	batch.Queue("INSERT INTO gx (time, host, n) VALUES ($1, $2, $3)", at, "failed", int64(2))
	err = db.SendBatch(ctx, batch).Close()
	expect(err != nil, "a batch that fails", err)
	expect(count(ctx, db, "failed") == 0, "rows of a batch that failed", count(ctx, db, "failed"))

	tx, err := db.Begin(ctx)
	check(err)
	_, err = tx.Exec(ctx, "INSERT INTO gx (time, host, n) VALUES ($1, $2, $3)", at, "tx", int64(1))
	check(err)
	check(tx.Rollback(ctx))
	expect(count(ctx, db, "tx") == 0, "rows of a rolled back transaction", count(ctx, db, "tx"))

	copied, err := db.CopyFrom(ctx, pgx.Identifier{"gx"}, []string{"time", "host", "n"}, pgx.CopyFromRows([][]any{{at, "copy", int64(1)}, {at.Add(time.Second), "copy", int64(2)}}))
	check(err)
	expect(copied == 2 && count(ctx, db, "copy") == 2, "copied rows", copied)

	_, err = db.Exec(ctx, "SELECT nothing FROM gx")
	var refused *pgconn.PgError
	expect(errors.As(err, &refused) && refused.Code == "42703", "an error", err)
	check(db.Close(ctx))
	fmt.Println("all is well")
}
