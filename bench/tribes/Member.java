/*
 * One member of a group of Apache Tribes, for bench/election.py: java Member NAME PORT FREQUENCY_MS DROP_MS.
 *
 * Reads lines on standard input: one with "join" starts it, one with "longest" is answered at once (it is up). Each view
 * on which the members have agreed is a line of JSON on standard output, with the time of System.nanoTime(), which on
 * Linux is CLOCK_MONOTONIC.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.catalina.tribes.Channel;
import org.apache.catalina.tribes.ChannelInterceptor;
import org.apache.catalina.tribes.group.GroupChannel;
import org.apache.catalina.tribes.group.interceptors.NonBlockingCoordinator;
import org.apache.catalina.tribes.group.interceptors.TcpFailureDetector;
import org.apache.catalina.tribes.membership.McastService;
import org.apache.catalina.tribes.transport.ReceiverBase;

public final class Member {
    private static final class Coordinator extends NonBlockingCoordinator {
        private Object told;

        @Override
        public void fireInterceptorEvent(ChannelInterceptor.InterceptorEvent event) {
            super.fireInterceptorEvent(event);
            long now = System.nanoTime();
            synchronized (this) {
                if (getViewId() == null || getViewId().equals(told)) return;
                told = getViewId();
                System.out.println("{\"event\": \"view\", \"tag\": \"" + told + "\", \"at_ns\": " + now
                    + ", \"members\": [" + names() + "]}");
            }
        }

        private String names() {
            return Arrays.stream(getView()).map(member -> new String(member.getPayload(), StandardCharsets.UTF_8))
                .map(name -> '"' + name + '"').collect(Collectors.joining(", "));
        }
    }

    public static void main(String[] arguments) throws Exception {
        GroupChannel channel = new GroupChannel();
        McastService membership = (McastService) channel.getMembershipService();
        membership.setPayload(arguments[0].getBytes(StandardCharsets.UTF_8));
        membership.setBind("127.0.0.1");
        membership.setPort(Integer.parseInt(arguments[1]));
        membership.setFrequency(Long.parseLong(arguments[2]));
        membership.setDropTime(Long.parseLong(arguments[3]));
        ((ReceiverBase) channel.getChannelReceiver()).setAddress("127.0.0.1");
        channel.addInterceptor(new Coordinator());
        channel.addInterceptor(new TcpFailureDetector()); // below it, as its documentation recommends
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null;) {
            if (line.contains("\"join\"")) channel.start(Channel.DEFAULT);
            if (line.contains("\"longest\"")) System.out.println("{\"event\": \"longest\", \"ns\": 0}");
        }
        System.exit(0);
    }
}
