// RUN: trc-opt %s -p arch-deduce-shapes,arch-normalize-flatten | filecheck %s
// RUN: trc-opt %s -p arch-deduce-shapes,arch-normalize-flatten,arch-normalize-flatten | filecheck %s

// A map whose channels are no multiple of 8 needs one, written or not.
// CHECK-LABEL: arch.model @missing
// CHECK-NEXT: %[[F:.*]] = arch.flatten %x layer "flatten1" : tensor<?x1x1x784xf32>
// CHECK-NEXT: arch.fc %[[F]] {out_features = 10}
arch.model @missing(%x: tensor<?x28x28x1xf32>) {
  %0 = arch.fc %x {out_features = 10} layer "fc1"
  arch.output %0
}

// CHECK-LABEL: arch.model @written
// CHECK-NEXT: %[[F:.*]] = arch.flatten %x layer "mine"
// CHECK-NEXT: arch.fc %[[F]]
arch.model @written(%x: tensor<?x28x28x1xf32>) {
  %0 = arch.flatten %x layer "mine"
  %1 = arch.flatten %0 layer "again"
  %2 = arch.fc %1 {out_features = 10}
  arch.output %2
}

// A dense map needs none; nor does a vector.
// CHECK-LABEL: arch.model @dense
// CHECK-NEXT: arch.fc %x
// CHECK-NEXT: arch.fc
// CHECK-NEXT: arch.output
arch.model @dense(%x: tensor<?x7x7x512xf32>) {
  %0 = arch.flatten %x
  %1 = arch.fc %0 {out_features = 10}
  %2 = arch.flatten %1
  %3 = arch.fc %2 {out_features = 10}
  arch.output %3
}

// The rule holds for every fully connected layer; one flatten serves two readers.
// CHECK-LABEL: arch.model @later
// CHECK-NEXT: arch.fc %x
// CHECK-NEXT: %[[C:.*]] = arch.conv %x
// CHECK-NEXT: %[[F:.*]] = arch.flatten %[[C]] layer "flatten1"
// CHECK-NEXT: arch.fc %[[F]]
// CHECK-NEXT: arch.fc %[[F]]
arch.model @later(%x: tensor<?x4x4x8xf32>) {
  %0 = arch.fc %x {out_features = 3}
  %1 = arch.conv %x {out_channels = 3, kernel = 1}
  %2 = arch.fc %1 {out_features = 3}
  %3 = arch.fc %1 {out_features = 3}
  %4 = arch.add %0, %2
  %5 = arch.add %3, %4
  arch.output %5
}

// What works on each number alone may run before a flatten.
// CHECK-LABEL: arch.model @passes
// CHECK-NEXT: %[[R:.*]] = arch.relu %x : tensor<?x2x2x3xf32>
// CHECK-NEXT: %[[D:.*]] = arch.dropout %[[R]] : tensor<?x2x2x3xf32>
// CHECK-NEXT: %[[F:.*]] = arch.flatten %[[D]] layer "f" : tensor<?x1x1x12xf32>
// CHECK-NEXT: arch.fc %[[F]]
arch.model @passes(%x: tensor<?x2x2x3xf32>) {
  %0 = arch.flatten %x layer "f"
  %1 = arch.relu %0
  %2 = arch.dropout %1
  %3 = arch.fc %2 {out_features = 10}
  arch.output %3
}

// A batch norm of the vector is another one than that of the map: this flatten stays.
// CHECK-LABEL: arch.model @norm
// CHECK-NEXT: arch.tanh %x
// CHECK-NEXT: %[[F:.*]] = arch.flatten %{{.*}} layer "f"
// CHECK-NEXT: %[[B:.*]] = arch.bn1d %[[F]] : tensor<?x1x1x32xf32>
// CHECK-NEXT: arch.fc %[[B]]
arch.model @norm(%x: tensor<?x2x2x8xf32>) {
  %0 = arch.flatten %x layer "f"
  %1 = arch.tanh %0
  %2 = arch.bn1d %1
  %3 = arch.fc %2 {out_features = 10}
  arch.output %3
}

// Other readers of the map keep the map.
// CHECK-LABEL: arch.model @fork
// CHECK-NEXT: %[[F:.*]] = arch.flatten %x layer "f"
// CHECK-NEXT: %[[A:.*]] = arch.fc %[[F]]
// CHECK-NEXT: %[[G:.*]] = arch.gap %x : tensor<?x1x1x3xf32>
// CHECK-NEXT: arch.add %[[A]], %[[G]]
arch.model @fork(%x: tensor<?x2x2x3xf32>) {
  %0 = arch.flatten %x layer "f"
  %1 = arch.fc %0 {out_features = 3}
  %2 = arch.gap %x
  %3 = arch.add %1, %2
  arch.output %3
}

// A sum of two flattened maps passes; of one flattened map and a vector it does not.
// CHECK-LABEL: arch.model @sums
// CHECK-NEXT: %[[T:.*]] = arch.tanh %x : tensor<?x2x2x8xf32>
// CHECK-NEXT: %[[A:.*]] = arch.add %x, %[[T]] : tensor<?x2x2x8xf32>
// CHECK-NEXT: %[[V:.*]] = arch.fc %[[A]] {out_features = 32}
// CHECK-NEXT: %[[F:.*]] = arch.flatten %[[A]] layer "f"
// CHECK-NEXT: arch.add %[[F]], %[[V]] : tensor<?x1x1x32xf32>
arch.model @sums(%x: tensor<?x2x2x8xf32>) {
  %0 = arch.flatten %x layer "f"
  %1 = arch.tanh %0
  %2 = arch.add %0, %1
  %3 = arch.fc %2 {out_features = 32}
  %4 = arch.add %2, %3
  arch.output %4
}

// The loss takes a vector; so does the network's result where it is flattened.
// CHECK-LABEL: arch.model @loss
// CHECK-NEXT: %[[F:.*]] = arch.flatten %x layer "flatten1"
// CHECK-NEXT: arch.softmax_ce %[[F]] {num_classes = 32} : tensor<?x1x1x32xf32>
arch.model @loss(%x: tensor<?x2x2x8xf32>) {
  %0 = arch.softmax_ce %x {num_classes = 32}
  arch.output %0
}

// CHECK-LABEL: arch.model @result
// CHECK-NEXT: arch.relu
// CHECK-NEXT: %[[F:.*]] = arch.flatten %{{.*}} layer "f"
// CHECK-NEXT: arch.output %[[F]]
arch.model @result(%x: tensor<?x2x2x8xf32>) {
  %0 = arch.flatten %x layer "f"
  %1 = arch.relu %0
  arch.output %1
}
