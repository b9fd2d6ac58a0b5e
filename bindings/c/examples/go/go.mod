module thalweg.example

go 1.21
