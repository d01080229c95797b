// 54: Java's VM finds callers of its own C++ functions by their return addresses, at exceptions and safe points.
import java.util.*;

public class Errors {
    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread thread = new Thread(() -> {
                long sum = 0;
                for (int k = 0; k < 100_000; k++) {
                    sum += Map.of(k, "" + k).hashCode();
                    try {
                        if (k % 500 == 0) throw new RuntimeException();
                    } catch (RuntimeException e) {
                        sum++;
                    }
                }
                synchronized (Errors.class) {
                    System.out.println(sum);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        System.gc();
    }
}
