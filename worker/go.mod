module holdfast/worker

go 1.25.0

replace holdfast => ../
